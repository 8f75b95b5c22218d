"""Scores as int8: every row (one anchor query's scores) has an offset and a step of its own.

A file of them is a plain .npy of records (offset, step, codes); a score is offset + step · code. The range of a
row is cut into 254 equal steps, so no score is off by more than half a step, and none lies outside.
Equal steps are as good as finer ones where most scores lie: docs/building.md has the figures.
"""

from __future__ import annotations

import numpy as np

CODES = 127  # codes go from −127 to 127


def quantise(scores: np.ndarray) -> np.ndarray:
    """Rows of scores as records; a row of equal scores is kept as it is, with step 0.

    >>> records = quantise(np.array([[-11.0, -10.0, 9.0], [2.0, 2.0, 2.0]]))
    >>> records["codes"].tolist(), records["offset"].tolist()
    ([[-127, -114, 127], [0, 0, 0]], [-1.0, 2.0])
    """
    records = np.empty(len(scores), record_type(scores.shape[1]))
    for record, row in zip(records, scores, strict=True):  # one at a time: in float64 all would be large
        low, high = float(row.min()), float(row.max())
        record["offset"], record["step"] = (low + high) / 2, (high - low) / (2 * CODES)
        if record["step"]:
            row = (row.astype(np.float64) - record["offset"]) / record["step"]
            record["codes"] = np.clip(np.rint(row), -CODES, CODES)
        else:
            record["codes"] = 0
    return records


def restore(array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The scores of records as float32, into `out` if given; an array of floats as it is.

    >>> restore(quantise(np.array([[0.0, 10.0, 254.0]]))).tolist()
    [[0.0, 10.0, 254.0]]
    """
    if out is None:
        out = np.empty(shape_of(array), np.float32 if is_int8(array) else array.dtype)
    if is_int8(array):
        np.multiply(array["codes"], array["step"][:, None], out=out)
        out += array["offset"][:, None]
    else:
        out[...] = array
    return out


def record_type(columns: int) -> np.dtype:
    """What one row of `columns` scores is on disk."""
    return np.dtype([("offset", "<f4"), ("step", "<f4"), ("codes", "i1", (columns,))])


def is_int8(array: np.ndarray) -> bool:
    """
    >>> is_int8(quantise(np.eye(2))), is_int8(np.eye(2))
    (True, False)
    """
    codes = array.dtype.fields["codes"][0] if array.dtype.fields and "codes" in array.dtype.fields else None
    return codes is not None and len(codes.shape) == 1 and array.dtype == record_type(codes.shape[0])


def shape_of(array: np.ndarray) -> tuple[int, ...]:
    """(rows, columns), of records as of floats.

    >>> shape_of(quantise(np.eye(2))), shape_of(np.eye(2))
    ((2, 2), (2, 2))
    """
    return (len(array), array["codes"].shape[1]) if is_int8(array) else array.shape
