#!/bin/sh
# Trains crosscut-tiny again, from texts to the folder that ships. Needs the extras train and export, and a GPU.
#
#   TRANSLATION=Translation-en.xz PACKAGES=site-packages WORDNET=entities REPLIES=train.jsonl recipes/tiny/train.sh work
#
# See texts.py for the four sources; each may be left out. TEACHER and ENCODER may also be folders.
set -eu
work=$1
here=$(dirname "$0")
teacher=${TEACHER:-cross-encoder/ms-marco-MiniLM-L12-v2}
encoder=${ENCODER:-sentence-transformers/all-MiniLM-L6-v2}
mkdir -p "$work"

python "$here/texts.py" --out "$work/texts" ${TRANSLATION:+--debian "$TRANSLATION"} ${PACKAGES:+--packages "$PACKAGES"} \
    ${WORDNET:+--wordnet "$WORDNET"} ${REPLIES:+--replies "$REPLIES"}

# Two students with the same words, rounded as they will ship, which training leaves alone.
python "$here/student.py" "$encoder" --layers 0,2,5 --texts "$work/texts" --out "$work/student-encoder"
python "$here/student.py" "$encoder" --layers 0,2,4 --texts "$work/texts" --out "$work/student-scorer"

crosscut train distil "$work/texts" --loss vectors --teacher "$encoder" --base "$work/student-encoder" --freeze-words \
    --batch-size 1024 --learning-rate 5e-4 --warmup 0.05 --steps "${ENCODER_STEPS:-3000}" --out "$work/encoder"

python "$here/candidates.py" "$work/texts" --tokenizer "$work/student-scorer/tokenizer.json" --depth 12 --out "$work/words.run"
crosscut train distil "$work/texts" --loss mse --teacher "$teacher" --base "$work/student-scorer" --freeze-words \
    --candidates "run:$work/words.run,random" --depth 24 --sample 12 --query-tokens 64 --item-tokens 256 \
    --batch-size 192 --learning-rate 3e-4 --warmup 0.05 --steps "${SCORER_STEPS:-5000}" --out "$work/scorer"

python "$here/bundle.py" "$work/scorer" "$work/encoder" --texts "$work/texts"
