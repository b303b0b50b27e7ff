"""The store on DynamoDB: one table without secondary indexes, transactions for commits.

transport ◀─ client          the five calls that the engine needs, and how boto3 makes them
items                        the items of the table
draft ─▶ pack ─▶ commit      what a commit requires and changes; how drafts share a transaction;
                             how a transaction is sent and its outcome found out
log, read, rows              reads of the log, of events for decisions, and of rows
hints                        fence positions seen before, to refuse commits early
rules                        the rules by which events were indexed
presence                     which processes have the log open
pace                         deadlines and retries
store                        all of it as the kernel's ``Store``
"""

from __future__ import annotations

from tidegate.engines.dynamodb.store import DynamoStore

__all__ = ["DynamoStore"]
