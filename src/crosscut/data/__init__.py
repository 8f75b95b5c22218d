"""Readers and writers: BEIR, TREC runs and qrels, ZESHEL, BLINK mentions, dialogues, jsonl, csv, tsv and txt."""

from crosscut.data.beir import Beir, read_beir, write_beir
from crosscut.data.mentions import Mention, as_entity, item_as_query, read_blink, write_blink
from crosscut.data.read import read_items, read_queries
from crosscut.data.replies import Reply, read_replies
from crosscut.data.trec import read_qrels, read_run, write_qrels, write_run
from crosscut.data.zeshel import read_zeshel_items, read_zeshel_mentions, read_zeshel_worlds

__all__ = [
    "Beir",
    "Mention",
    "Reply",
    "as_entity",
    "item_as_query",
    "read_beir",
    "read_blink",
    "read_items",
    "read_qrels",
    "read_queries",
    "read_replies",
    "read_run",
    "read_zeshel_items",
    "read_zeshel_mentions",
    "read_zeshel_worlds",
    "write_beir",
    "write_blink",
    "write_qrels",
    "write_run",
]
