"""Every family of models in small: tokenizers trained on a few sentences, models with random weights."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

# Whoever imports this is skipped where these are not installed.
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
models, normalizers, trainers = tokenizers.models, tokenizers.normalizers, tokenizers.trainers
pre_tokenizers, processors = tokenizers.pre_tokenizers, tokenizers.processors

LIMIT = 24  # tokens that the models read
TEXTS = [
    "the blue whale sings in a grey sky",
    "does my policy cover floods, storms and fire?",
    "Floods are covered; fire isn't. Ask again!",
    "",
    "a",
    "whale whale whale",
    "what a very long text about the policy that covers the whale in the sky " * 4,
    "naïve É 東京 ß 🐳",
]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "initializer_range": 0.5,  # large weights, so that different pairs get clearly different scores
    "num_labels": 1,
}


def wordpieces(cls=transformers.BertTokenizer, **options):
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=BERT_SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    # In an order of our own: that of the trainer differs from run to run.
    words = [*BERT_SPECIAL, *sorted(set(tokenizer.get_vocab()) - set(BERT_SPECIAL))]
    return cls(vocab={word: number for number, word in enumerate(words)}, **options)


def byte_pairs(special):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def roberta(**options):
    model = json.loads(byte_pairs(ROBERTA_SPECIAL).to_str())["model"]
    return transformers.RobertaTokenizer(
        vocab=model["vocab"], merges=[tuple(merge) for merge in model["merges"]], **options
    )


def modernbert(**options):
    tokenizer = byte_pairs(BERT_SPECIAL)
    tokenizer.normalizer = normalizers.NFC()
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    names |= {"model_input_names": ["input_ids", "attention_mask"]}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, **options)


def pieces(cls, special, **options):
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    unknown = next(token for token in special if "unk" in token.lower())
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=special, unk_token=unknown, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    vocab = [(token, 0.0) for token in special] + sorted((piece, score) for piece, score in vocab[len(special) :])
    return cls(vocab=vocab, **options)


TOKENIZERS = {
    "bert": wordpieces,
    "bert-cased": lambda: wordpieces(do_lower_case=False),
    "electra": wordpieces,
    "distilbert": lambda: wordpieces(transformers.DistilBertTokenizer),
    "roberta": roberta,
    "roberta-prefix": lambda: roberta(add_prefix_space=True),
    "xlm-roberta": lambda: pieces(transformers.XLMRobertaTokenizer, ROBERTA_SPECIAL),
    "camembert": lambda: pieces(transformers.CamembertTokenizer, ROBERTA_SPECIAL),
    "deberta-v2": lambda: pieces(transformers.DebertaV2Tokenizer, BERT_SPECIAL),
    "deberta-v2-no-prefix": lambda: pieces(transformers.DebertaV2Tokenizer, BERT_SPECIAL, add_prefix_space=False),
    "modernbert": modernbert,
}


@cache
def tokenizer_of(family):
    return TOKENIZERS[family]()


def config_of(family, tokenizer, **options):
    sizes = SIZES | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    sizes |= {"max_position_embeddings": LIMIT}
    if family in ("roberta", "xlm-roberta", "camembert"):
        # They count positions from the padding index on.
        sizes |= {"max_position_embeddings": LIMIT + tokenizer.pad_token_id + 1, "type_vocab_size": 1}
    if family == "modernbert":
        sizes |= {"local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": tokenizer.cls_token_id}
        sizes |= {"sep_token_id": tokenizer.sep_token_id, "bos_token_id": None, "eos_token_id": None}
        sizes |= {"initializer_cutoff_factor": 3.0}
    if family == "deberta-v2":
        sizes |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0}
        sizes |= {"position_biased_input": False, "position_buckets": 8, "norm_rel_ebd": "layer_norm"}
        sizes |= {"share_att_key": True, "pooler_hidden_size": SIZES["hidden_size"]}
    if family == "electra":
        sizes |= {"embedding_size": 16}
    if family == "distilbert":
        names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
        names |= {"intermediate_size": "hidden_dim"}
        sizes = {names.get(name, name): value for name, value in sizes.items()}
    return transformers.AutoConfig.for_model(family, **(sizes | options))


def save(
    folder: Path,
    family: str = "bert",
    model: type = transformers.AutoModelForSequenceClassification,
    tokenizer=None,
    **options,
) -> Path:
    """A model of this family with random weights, and its tokenizer, in `folder`; `options` for its config."""
    tokenizer = tokenizer or TOKENIZERS[family]()
    tokenizer.model_max_length = LIMIT
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    made = model.from_config(config_of(family, tokenizer, **options))
    for parameter in made.parameters():  # biases begin as zeros, which would hide that one is forgotten
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.2)
    made.save_pretrained(folder)
    return folder
