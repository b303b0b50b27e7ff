"""The text around the generated tables of docs/reference."""

from __future__ import annotations

from typing import Final

from tidegate import config
from tidegate.agent import config as agent_config

SETTINGS: Final = f"""
# Settings

## The server

`tidegate serve` and `tidegate worker` read their settings from four places. A flag wins over the
environment, the environment wins over the file of `--config`, and the file wins over the default.
`tidegate serve` has a flag for every setting. The other commands have flags only for the settings
that they use, and read the same file and environment. The file is TOML and has at most
{config.FILE_BYTES_MAX:,} bytes. A setting that does not exist or is not allowed stops the start
with `invalid_setting` and exit code 2.

"""
TARGETS: Final = """
### target

`[targets.<operation>]` in the file says where the work of one outbox operation goes. A channel's
policy names the operations. There is no flag and no environment variable for a target.

"""
NOTIFY: Final = """
### notify

`[notify]` in the file is what [notifications](../notifications.md) need from the machine that sends
them. There is no flag and no environment variable for it.

"""
AGENT: Final = f"""
## The agent

`tidegate agent --config FILE` reads one TOML file of at most {agent_config.FILE_BYTES_MAX:,} bytes.
Only `state` has a flag. The one-time token for the first start comes from `--token-file` or from
the environment variable `TIDEGATE_AGENT_TOKEN`. A wrong setting stops the start with
`invalid_agent_setting`.

"""
AGENT_CHANNEL: Final = """
### agent channel

`[channels.<name>]` in the agent's file says how this host runs one channel.

"""
POLICY: Final = """
# The rollout policy

A channel's policy says how a release reaches the channel's hosts: in which waves, what happens on
failure, how long each step may take, and what must happen first. You give it as JSON when you
create or edit the channel. A rollout copies the policy when it opens, so an edit changes later
rollouts only.

**A channel that you create without a policy gets the default policy, written out in full:**

```json
@@DEFAULT@@
```

So a release reaches one host, then 10 % of the channel, then the rest. Of 100 hosts these are 1, 10
and 89. A policy that you give is completed in the same way: without `waves` it gets these three,
and without `offline_grace_seconds` it gets 900. Write `"waves": []` for all hosts at once, and
`"offline_grace_seconds": null` to wait for silent hosts without an end.

"""
POLICY_EXAMPLE: Final = """
Write the policy to a file and create the channel with it. Show the plan before you promote: it
names the hosts of each wave and changes nothing.

```sh
cat > policy.json <<'EOF'
{
  "waves": [
    {"name": "canary", "count": 1, "soak_seconds": 600},
    {"name": "rest", "soak_seconds": 600}
  ]
}
EOF
tidegate channel create web-prod --package web --hosts role=web --policy policy.json
tidegate channel edit web-prod --policy policy.json       # replaces the whole policy
tidegate rollout plan web-prod web.1
```

The next policy starts with one host, then takes a quarter of the channel, then the rest. The last
wave tolerates failures on 2 % of its hosts. Hosts that are silent for an hour are skipped. A
release goes out only after it ran well on `web-dev` for a day, `db-2` waits for `db-1`, and every
promotion requests the outbox operation `notify`.

"""
POLICY_REFUSALS: Final = """
A member that does not exist, or a value that is not allowed, is refused (`invalid_request` or
`malformed_policy`). `channel create` and `channel edit` name every fault. The server also checks
the policy against the fleet: hosts and channels that it names must exist, and a host must not wait
for a host of a later wave.

Check a policy before you use it. `--check` names its faults, what would work otherwise than it
reads (warnings), and what it means (notes). It exits with 0, or with 2 if there is a fault.
`--diff` shows what the file would change. Neither changes anything.

```sh
tidegate channel policy --example > careful.json
tidegate channel policy --check careful.json --channel web-prod
tidegate channel policy web-prod --diff careful.json
tidegate channel policy web-prod                          # every member, also the defaults
```

## policy

"""
WAVES: Final = """
## wave

A host goes with the first wave that takes it, in the order of the list. Within a wave, hosts are
taken by name. A host that no wave takes gets no orders, so let the last wave take the rest.

A wave is done when at least `converged_min` of its hosts converged, and `success_percent` of the
hosts that count are Converged or Deferred. Hosts that were skipped, or failed within the wave's
limit, do not count. The next wave starts when every wave before it is done, its `delay_seconds` are
over, and, if it is `manual`, an operator ran `tidegate rollout continue`.

"""
EDGES: Final = """
## channel edge

A channel that must show something before orders go out on this one.
[Gates](../gates.md#channel-edges) has the details. You can also write the channel's name alone:
`"edges": ["web-dev"]` requires a success and no soak.

"""
REQUIRE: Final = """
The values of `require`:

"""
HOST_EDGES: Final = """
## host edge

A host that waits for another host of its channel. An edge of a host that left the channel has no
effect.

"""
METRICS: Final = """
# Metrics

`GET /metrics` returns these metrics in the text format of Prometheus. It needs the verb `read` on
the scope `*`, so give your scraper an API token. Label values come from the code, never from a
request.

Counters are listed with the suffix `_total` that they have in the text. The histogram has the
series `_bucket`, `_count` and `_sum`.

"""
WORKER: Final = """
## The worker

These describe the worker's loops. They are part of `/metrics` where `tidegate serve` runs the
worker. A separate `tidegate worker` serves them on 127.0.0.1 if you set `worker_metrics_port`.
Those of the archive exist only if the setting `archive` names a directory.

"""
PERMISSIONS: Final = """
# Roles and permissions

A user has roles, each granted on a scope. A role is a set of verbs. Every step that a person or a
program can take needs a verb on the scope that it is about. What no grant covers is refused with
`missing_permission`.

| scope | covers |
|---|---|
| `*` | everything |
| `repository:<name>` | the packages and revisions of a repository |
| `channel:<name>` | a channel, its pin, its rollouts and their outbox intents |

An API token has the roles of its user, or fewer: you can narrow it when you create it.

## Roles and verbs

"""
STEPS_HEAD: Final = """
## Steps

A step is one thing that an operator can do, through the API, the command line or the dashboard.

* **needs** is the verb. Where two verbs are named, one of them is enough. A dash means that the
  step is about yourself and needs no verb.
* **roles** are the roles that have the verb.
* **scope** is where the role must be granted. A grant on `*` always covers it.
* **version** says whether the request names the version of the object that you saw (`If-Match`).
  *demanded*: the request is refused with 428 without it. *checked*: it is compared if it is given.
  A version that is no longer current is refused with `version_conflict`.
* **urgent** steps stop something. They have a rate limit of their own, so that other writes of
  yours cannot hold them up.

"""
ROUTES_HEAD: Final = """
# Routes

Every route of the HTTP API. `GET /v1/openapi.json` has the same list for programs, with the types
of parameters and bodies. [The HTTP API](../api.md) explains versions, paging, idempotency keys and
waiting.

* **needs** is who may call it: *public*, any *signed-in* user, an *agent* by its MAC, or the
  [verb](permissions.md) and the scope that it is needed on. *Some scope* means that a list shows
  what you may read and leaves out the rest.
* **version** is about `If-Match`. *demanded*: 428 without it. *checked*: compared if given.
* **status** is that of success.
* **codes** are the [errors](errors.md) that belong to the route. Any route can also answer with
  the statuses of the first table.

| routes | can also answer |
|---|---|
"""
ERRORS: Final = """
# Errors

Every error has a code that does not change, and a family that says what to do about it. The API
returns an error as `application/problem+json` with its `code`. The command line prints the code and
ends with the exit code. [Problems](../problems/README.md) says for each code what to do next.

## Families

"""
ALL_ERRORS: Final = """
## All codes

A dash instead of a status: the error happens on a host, in the agent, and is not returned by the
server. Agents get 409 instead of 422 for a report that a rule refuses.

"""
