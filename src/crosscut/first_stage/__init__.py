"""Cheap rankings of all items, to choose which ones the scorer sees first: words, vectors, fusion, chance."""

from crosscut.first_stage.bm25 import BM25
from crosscut.first_stage.dense import dense_scores
from crosscut.first_stage.ranking import random_scores, ranking, reciprocal_rank_fusion, top
from crosscut.first_stage.terms import TermIndex
from crosscut.first_stage.tfidf import TFIDF

__all__ = [
    "BM25",
    "TFIDF",
    "TermIndex",
    "dense_scores",
    "random_scores",
    "ranking",
    "reciprocal_rank_fusion",
    "top",
]
