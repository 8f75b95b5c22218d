#!/bin/sh
# Trains crosscut-tiny again, from texts to the folder that ships. Needs the extras train and export, and a GPU.
#
#   TRANSLATION=Translation-en.xz PACKAGES=site-packages MANUALS=sdists WORDNET=entities REPLIES=train.jsonl \
#       recipes/tiny/train.sh work
#
# See texts.py for the sources; each may be left out. TEACHER and ENCODER may also be folders.
set -eu
work=$1
here=$(dirname "$0")
teacher=${TEACHER:-cross-encoder/ms-marco-MiniLM-L12-v2}
encoder=${ENCODER:-sentence-transformers/all-MiniLM-L6-v2}
mkdir -p "$work"

python "$here/texts.py" --out "$work/texts" ${TRANSLATION:+--debian "$TRANSLATION"} ${PACKAGES:+--packages "$PACKAGES"} \
    ${MANUALS:+--manuals "$MANUALS"} ${WORDNET:+--wordnet "$WORDNET"} ${REPLIES:+--replies "$REPLIES"}

# Two students with the same words, rounded as they will ship, which training leaves alone.
python "$here/student.py" "$teacher" --layers 0,4,8,11 --wide 1152 --texts "$work/texts" --out "$work/student-scorer"
python "$here/student.py" "$encoder" --layers 0,2,5 --words-of "$teacher" --out "$work/student-encoder"

crosscut train distil "$work/texts" --loss vectors --teacher "$encoder" --base "$work/student-encoder" --freeze-words \
    --batch-size 768 --learning-rate 8e-4 --warmup 0.05 --steps "${ENCODER_STEPS:-3000}" --out "$work/encoder"

python "$here/candidates.py" "$work/texts" --tokenizer "$work/student-scorer/tokenizer.json" --depth 14 --random 2 \
    --out "$work/words.run"
score() {
    crosscut train distil "$work/texts" --loss mse --freeze-words --candidates "run:$work/words.run" --depth 16 --sample 8 \
        --query-tokens 64 --item-tokens 256 --batch-size 96 --learning-rate 4e-4 --warmup 0.05 "$@"
}
# From the cross-encoder alone, then from the mean of it and the bi-encoder, which rank better together; then half of each.
score --teacher "$teacher" --states 20 --base "$work/student-scorer" --steps "${SCORER_STEPS:-6000}" --out "$work/scorer-one"
score --teacher "$teacher" --teacher "encoder:$encoder" --states 5 --base "$work/scorer-one" \
    --steps "${SECOND_STEPS:-2500}" --out "$work/scorer-two"
python "$here/average.py" "$work/scorer-one" "$work/scorer-two" --out "$work/scorer"

python "$here/bundle.py" "$work/scorer" "$work/encoder" --texts "$work/texts"
