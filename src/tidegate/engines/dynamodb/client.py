"""The calls of ``transport`` on the real service, by boto3 with its own retries switched off."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cache
from threading import Lock
from typing import Any

import boto3
from botocore import exceptions
from botocore.config import Config

from tidegate.engines.dynamodb import transport
from tidegate.engines.dynamodb.pace import RetryPace
from tidegate.errors import StoreRefused, StoreUnavailable

USER_AGENT = "tidegate"
CONNECT_SECONDS_MAX = 2.0
ANSWER_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 64
TABLE_POLLS_MAX = 120
TABLE_POLL_SECONDS_FIRST, TABLE_POLL_SECONDS_MAX = 0.01, 1.0

_BUSY = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "TransactionConflictException",
    }
)
_KEYS = [
    {"AttributeName": transport.PK, "KeyType": "HASH"},
    {"AttributeName": transport.SK, "KeyType": "RANGE"},
]


_session_lock = Lock()  # threads may share a client, but not the session that makes clients


@cache
def _session() -> Any:
    """One session per process, because each parses the description of the service."""
    return boto3.session.Session()


class BotoTransport:
    """One table of the service, or of a server that speaks its protocol."""

    def __init__(self, table: str, *, region: str | None, endpoint: str | None = None) -> None:
        self._table = table
        self._date: str | None = None  # from the service's last response
        config = Config(
            connect_timeout=CONNECT_SECONDS_MAX,
            read_timeout=ANSWER_SECONDS_MAX,
            max_pool_connections=CONNECTIONS_MAX,
            retries={"total_max_attempts": 1, "mode": "standard"},
            user_agent=USER_AGENT,  # otherwise boto3 builds the text for every request
        )
        with _session_lock:
            self._client = _session().client(
                "dynamodb", region_name=region, endpoint_url=endpoint, config=config
            )

    def get(
        self, places: Sequence[transport.ItemKey], *, together: bool = False
    ) -> dict[transport.ItemKey, transport.Item]:
        if together:
            return self._get_together(places)
        found: dict[transport.ItemKey, transport.Item] = {}
        for start in range(0, len(places), transport.ITEMS_MAX):
            asked = {"Keys": [_key(place) for place in places[start : start + transport.ITEMS_MAX]]}
            while asked:  # a response may be partial, but must have at least one item
                answer = self._call(
                    self._client.batch_get_item,
                    RequestItems={self._table: {**asked, "ConsistentRead": True}},
                )
                items = [_to_item(raw) for raw in answer["Responses"].get(self._table, ())]
                found.update((transport.key_of_item(item), item) for item in items)
                asked = answer.get("UnprocessedKeys", {}).get(self._table)
                if asked and not items:
                    raise transport.Busy("every key was left over")
        return found

    def _get_together(
        self, places: Sequence[transport.ItemKey]
    ) -> dict[transport.ItemKey, transport.Item]:
        gets = [{"Get": {"TableName": self._table, "Key": _key(place)}} for place in places]
        try:
            answer = self._call(self._client.transact_get_items, TransactItems=gets)
        except transport.Cancelled as conflict:
            raise transport.Busy(
                str(conflict)
            ) from conflict  # a transaction is writing one of them
        items = [_to_item(one["Item"]) for one in answer["Responses"] if one.get("Item")]
        return {transport.key_of_item(item): item for item in items}

    def query(
        self,
        pk: str,
        *,
        low: str | None = None,
        high: str | None = None,
        start: str | None = None,
        limit: int | None = None,
        descending: bool = False,
    ) -> transport.ItemPage:
        condition, values = f"{transport.PK} = :pk", {":pk": {"S": pk}}
        bounds = {":low": low or None, ":high": high}  # an empty text is no bound and no key
        values |= {name: {"S": bound} for name, bound in bounds.items() if bound is not None}
        if low and high is not None:
            condition += f" AND {transport.SK} BETWEEN :low AND :high"
        elif low:
            condition += f" AND {transport.SK} >= :low"
        elif high is not None:
            condition += f" AND {transport.SK} <= :high"
        options: dict[str, Any] = {} if limit is None else {"Limit": limit}
        if start is not None:
            options["ExclusiveStartKey"] = _key(transport.ItemKey(pk, start))
        answer = self._call(
            self._client.query,
            TableName=self._table,
            ConsistentRead=True,
            ScanIndexForward=not descending,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            **options,
        )
        last = answer.get("LastEvaluatedKey")
        return transport.ItemPage(
            [_to_item(raw) for raw in answer["Items"]], last[transport.SK]["S"] if last else None
        )

    def increment(
        self, place: transport.ItemKey, attribute: str, equal: Mapping[str, transport.Value | None]
    ) -> int | None:
        change = self._update_arguments(transport.UpdateItem(place, equal, adds={attribute: 1}))
        try:
            answer = self._call(self._client.update_item, **change, ReturnValues="UPDATED_NEW")
        except _ConditionFailed:
            return None
        return int(answer["Attributes"][attribute]["N"])

    def put_absent(self, item: transport.Item) -> transport.Item | None:
        try:
            self._call(self._client.put_item, **self._put_arguments(item))
        except _ConditionFailed as refusal:
            return refusal.item
        return None

    def transact(self, actions: Sequence[transport.Action], token: str) -> None:
        self._call(
            self._client.transact_write_items,
            TransactItems=[self._render(action) for action in actions],
            ClientRequestToken=token,
        )

    def now(self) -> float:
        """The time of the service's last response; before the first one, of our own clock.

        Our clock is never wrong by more than minutes, or the service would refuse the signatures
        of our requests.
        """
        date = self._date
        return time.time() if date is None else parsedate_to_datetime(date).timestamp()

    def close(self) -> None:
        self._client.close()

    def _call(self, method: Callable[..., Any], **arguments: Any) -> Any:
        """Send one request, and raise the error that fits what is known about its outcome."""
        try:
            answer = method(**arguments)
            self._date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
            return answer
        except exceptions.ClientError as error:
            raise _translate(error) from error
        except (
            exceptions.ConnectTimeoutError,
            exceptions.EndpointConnectionError,
            exceptions.ProxyConnectionError,
        ) as error:
            raise transport.Busy(str(error)) from error  # the request was never sent
        except exceptions.HTTPClientError as error:
            raise transport.AnswerLost(str(error)) from error
        except exceptions.BotoCoreError as error:
            raise StoreRefused(f"DynamoDB cannot be called: {error}") from error

    def _render(self, action: transport.Action) -> dict[str, Any]:
        match action:
            case transport.AddItem(item):
                return {"Put": self._put_arguments(item)}
            case transport.ReplaceItem(item):
                return {"Put": {"TableName": self._table, "Item": _to_typed_item(item)}}
            case transport.RemoveItem(place):
                return {"Delete": {"TableName": self._table, "Key": _key(place)}}
            case transport.UpdateItem():
                return {"Update": self._update_arguments(action)}

    def _put_arguments(self, item: transport.Item) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "Item": _to_typed_item(item),
            "ConditionExpression": f"attribute_not_exists({transport.PK})",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _update_arguments(self, change: transport.UpdateItem) -> dict[str, Any]:
        placeholders = _Placeholders()
        conditions = [
            f"attribute_not_exists({placeholders.name(attribute)})"
            if value is None
            else f"{placeholders.name(attribute)} = {placeholders.value(value)}"
            for attribute, value in change.equal.items()
        ]
        for attribute, bound in change.below.items():
            name = placeholders.name(attribute)
            conditions.append(
                f"(attribute_not_exists({name}) OR {name} < {placeholders.value(bound)})"
            )
        sets = [
            f"{placeholders.name(a)} = {placeholders.value(value)}"
            for a, value in change.sets.items()
        ]
        adds = [
            f"{placeholders.name(a)} {placeholders.value(value)}"
            for a, value in change.adds.items()
        ]
        removes = [placeholders.name(attribute) for attribute in change.removes]
        parts = {"SET": sets, "ADD": adds, "REMOVE": removes}
        return {
            "TableName": self._table,
            "Key": _key(change.place),
            "UpdateExpression": " ".join(f"{k} {', '.join(v)}" for k, v in parts.items() if v),
            "ConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": placeholders.names,
            "ExpressionAttributeValues": placeholders.values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    # ── creating the table when a store is opened ──

    def open_table(self, pace: RetryPace) -> None:
        """Create the table if it does not exist, and wait until it is active.

        Raises:
            StoreRefused: the table exists and has other keys than ours.
            StoreUnavailable: the service does not respond, or is still creating the table.
        """
        made = False
        for polls in range(TABLE_POLLS_MAX):
            found = pace.retry(self._describe)
            if found is None:
                pace.retry(self._create)
                made = True
            elif found["KeySchema"] != _KEYS:
                raise StoreRefused(
                    f"table {self._table} has other keys than {transport.PK} and {transport.SK}"
                )
            elif found["TableStatus"] in ("ACTIVE", "UPDATING"):
                if made:
                    pace.retry(self._enable_expiry)
                return
            pace.sleep(min(TABLE_POLL_SECONDS_MAX, TABLE_POLL_SECONDS_FIRST * 2**polls))
        raise StoreUnavailable(f"table {self._table} does not become active")

    def _enable_expiry(self) -> None:
        """Let the service delete items whose time in ``expires`` is past."""
        try:
            self._call(
                self._client.update_time_to_live,
                TableName=self._table,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": transport.EXPIRES},
            )
        except StoreRefused as error:
            if error.facts.get("reason") != "ValidationException":
                raise
            # Another process has done so already, or our own request whose response was lost.

    def _describe(self) -> Any:
        try:
            return self._call(self._client.describe_table, TableName=self._table)["Table"]
        except StoreRefused as error:
            if error.facts.get("reason") == "ResourceNotFoundException":
                return None
            raise

    def _create(self) -> None:
        """Create the table, unless another process or an earlier request of ours did."""
        try:
            self._call(
                self._client.create_table,
                TableName=self._table,
                KeySchema=_KEYS,
                AttributeDefinitions=[
                    {"AttributeName": name, "AttributeType": "S"}
                    for name in (transport.PK, transport.SK)
                ],
                BillingMode="PAY_PER_REQUEST",
            )
        except StoreRefused as error:
            if error.facts.get("reason") != "ResourceInUseException":
                raise


class _ConditionFailed(Exception):
    def __init__(self, item: transport.Item) -> None:
        super().__init__("the condition failed")
        self.item = item


def _translate(error: exceptions.ClientError) -> Exception:
    answer = error.response
    code = answer["Error"]["Code"]
    if code == "TransactionCanceledException":
        reasons = [_to_reason(raw) for raw in answer.get("CancellationReasons", ())]
        return transport.Cancelled(reasons)
    if code == "ConditionalCheckFailedException":
        return _ConditionFailed(_to_item(answer.get("Item", {})))
    if code in _BUSY:
        return transport.Busy(code)
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= 500 or code == "TransactionInProgressException":
        return transport.AnswerLost(code)
    return StoreRefused(f"DynamoDB refuses: {error}", reason=code)


def _to_reason(raw: Mapping[str, Any]) -> transport.CancellationReason:
    code = raw.get("Code")
    return transport.CancellationReason(
        None if code == "None" else code, _to_item(raw.get("Item", {}))
    )


class _Placeholders:
    """The placeholders for names and values in one expression."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    @property
    def names(self) -> dict[str, str]:
        return {placeholder: attribute for attribute, placeholder in self._known.items()}

    def name(self, attribute: str) -> str:
        return self._known.setdefault(attribute, f"#{len(self._known)}")

    def value(self, value: transport.Value) -> str:
        placeholder = f":{len(self.values)}"
        self.values[placeholder] = _to_typed_value(value)
        return placeholder


def _key(place: transport.ItemKey) -> dict[str, Any]:
    return {transport.PK: {"S": place.pk}, transport.SK: {"S": place.sk}}


def _to_typed_item(item: transport.Item) -> dict[str, Any]:
    return {name: _to_typed_value(value) for name, value in item.items()}


def _to_typed_value(value: transport.Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    return {"N": str(value)} if isinstance(value, int) else {"B": value}


def _to_item(raw: Mapping[str, Any]) -> transport.Item:
    item: transport.Item = {}
    for name, tagged in raw.items():
        ((kind, value),) = tagged.items()
        item[name] = int(value) if kind == "N" else value
    return item
