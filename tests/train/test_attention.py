"""Attention without a mask gives what attention with a mask gives."""

import pytest
import tiny_data

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.models

LENGTHS = [9, 9, 4, 1, 7]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tiny_data.save_base(tmp_path_factory.mktemp("base"))


def rows(model):
    ids = torch.randint(
        5, model.config.vocab_size, (len(LENGTHS), max(LENGTHS)), generator=torch.Generator().manual_seed(0)
    )
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask}


def by_sequence(query, key, value, bounds, keys, longest, longest_key):
    """What the kernel of a GPU does: every sequence by itself, some of them empty."""
    assert bounds is keys and bounds.dtype == torch.int32 and longest == longest_key == max(LENGTHS)
    made = torch.full_like(query, torch.nan)
    for start, end in zip(bounds.tolist(), bounds.tolist()[1:], strict=False):
        some = (part[start:end].transpose(0, 1) for part in (query, key, value))
        made[start:end] = torch.nn.functional.scaled_dot_product_attention(*some).transpose(0, 1)
    return made


@pytest.mark.parametrize("kernel", [False, True])
def test_values_and_gradients_are_those_with_a_mask(base, kernel, monkeypatch):
    from transformers import AutoModel

    from crosscut.train import attention

    if kernel:
        monkeypatch.setattr(attention, "varlen_attn", by_sequence)
        monkeypatch.setattr(attention, "_has_kernel", lambda query: True)
    found = []
    for change in (lambda model: None, attention.attend_by_rows):
        model = AutoModel.from_pretrained(base, dtype=torch.float32).eval()
        change(model)
        given = rows(model)
        real = model(**given).last_hidden_state[given["attention_mask"].bool()]
        real.square().sum().backward()
        found.append((real.detach(), model.encoder.layer[0].attention.self.key.weight.grad))
    for with_mask, without in zip(*found, strict=True):
        torch.testing.assert_close(without, with_mask, rtol=1e-4, atol=1e-5)


def test_dropout_and_full_rows(base):
    from transformers import AutoModel

    from crosscut.train.attention import attend_by_rows

    model = AutoModel.from_pretrained(
        base, dtype=torch.float32, attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.0
    )
    attend_by_rows(model)
    given = rows(model)
    first, second = (model.train()(**given).last_hidden_state for _ in range(2))
    assert not torch.allclose(first, second)
    model.eval()
    whole = {name: part[:2] for name, part in given.items()}
    with_mask, without = model(**whole), model(input_ids=whole["input_ids"])
    torch.testing.assert_close(with_mask.last_hidden_state, without.last_hidden_state)


def test_a_mask_that_is_given_whole(base):
    from transformers import AutoModel

    from crosscut.train.attention import attend_by_rows

    model = AutoModel.from_pretrained(base).eval()
    given = rows(model)
    given["attention_mask"] = (
        given["attention_mask"].flip(1).bool()[:, None, None]
    )  # what is filled up comes first
    before = model(**given).last_hidden_state
    attend_by_rows(model)
    torch.testing.assert_close(model(**given).last_hidden_state, before)


def test_it_is_not_saved(base, tmp_path):
    from transformers import AutoModel

    from crosscut.train.attention import NAME, attend_by_rows

    model = AutoModel.from_pretrained(base)
    attend_by_rows(model)
    model.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text()


@pytest.mark.parametrize("masked", [False, True])
def test_attention_in_bfloat16_is_that_in_float32_but_for_rounding(masked):
    from crosscut.scorers.torch_models import attend

    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(9) < torch.tensor([9, 5])[:, None])[:, None, None] if masked else None
    exact = [torch.randn(2, 3, 9, 8, generator=generator, requires_grad=True) for _ in range(3)]
    rounded = [part.detach().bfloat16().requires_grad_() for part in exact]
    whole = torch.nn.functional.scaled_dot_product_attention(*exact, attn_mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        made = attend(*rounded, mask)
    assert made.dtype == torch.bfloat16
    torch.testing.assert_close(made.float(), whole, atol=0.02, rtol=0.02)
    for output in (whole, made):
        output.float().square().sum().backward()
    for one, other in zip(rounded, exact, strict=True):
        torch.testing.assert_close(one.grad.float(), other.grad, atol=0.05, rtol=0.05)
