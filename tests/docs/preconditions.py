"""What a page assumes before its first block: the commands that its reader has run before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PASSWORD: Final = "correct horse battery"
SERVER: Final = f"""
tidegate serve --data data >> goes-on.log 2>&1 &
listening
echo '{PASSWORD}' | tidegate setup --login ada --name Ada --password-stdin \\
    --alone --code "$(cat data/setup-code)"
"""
# two hosts of the channel prod, which ran web.1, then web.2; and web.3, which fails its probe there
FLEET: Final = """
cat > policy.json <<'END'
{"waves": [{"name": "canary", "count": 1, "soak_seconds": 1}, {"name": "rest"}],
 "sustained_failure_seconds": 1}
END
tidegate channel create prod --package web --hosts env=prod --policy policy.json
for host in web-01 web-02; do
  mkdir $host
  tidegate host enroll $host --label env=prod > $host.token
  cat > $host.toml <<END
server = "http://127.0.0.1:8420"
state = "$PWD/$host/state"
tick_seconds = 1
[channels.prod]
driver = "symlink"
root = "$PWD/$host/srv"
probes = "$PWD/$host.probes.toml"
END
  cat > $host.probes.toml <<END
[[probes]]
name = "greets"
kind = "exec"
command = ["$PWD/$host/srv/current/greet"]
interval_seconds = 1
END
  tidegate agent --config $host.toml --token-file $host.token 2> $host.log &
done
until tidegate host show web-01 && tidegate host show web-02; do sleep 1; done
mkdir web
touch web/greet && chmod +x web/greet
for number in 1 2 3; do
  printf '#!/bin/sh\\nexit %d # %d\\n' $((number / 3)) $number > web/greet
  if [ $number -eq 1 ]; then
    tidegate rev create web --workspace v1 --from web
  else
    tidegate rev copy web.v1 --workspace v$number
    tidegate rev push web.v$number web
  fi
  tidegate rev propose web.v$number
  tidegate rev approve web.v$number
  if [ $number -lt 3 ]; then tidegate channel promote prod web.$number --wait; fi
done
"""
STAGES: Final[Mapping[str, str]] = {
    "docs/channels.md": SERVER + FLEET,
    # a team with an approver, a published package, a channel without hosts yet, a build's output
    "docs/recipes/from-ci.md": f"""{SERVER}
mkdir dist
echo one > dist/index.html
tidegate rev create web --workspace v1 --from dist
tidegate rev propose web.v1
tidegate rev approve web.v1
tidegate channel create stable --package web --hosts env=prod
tidegate channel promote stable web.1
tidegate repo edit default --approvals 1
echo '{PASSWORD}' | tee bob.password > ci.password
tidegate user create bob --name Bob --password-stdin --role viewer --role approver < bob.password
echo two > dist/index.html
""",
    # a server that is not set up, and the passwords of all users
    "docs/recipes/team.md": f"""
tidegate serve --data data >> goes-on.log 2>&1 &
listening
echo '{PASSWORD}' | tee ada.password bea.password cem.password dan.password > eve.password
""",
    # a server that may reach a receiver on this machine, and a channel
    "docs/notifications.md": f"""
printf 'data = "data"\\n[notify]\\nallowed = ["127.0.0.1:8421"]\\n' > tidegate.toml
{SERVER.replace("--data data", "--config tidegate.toml")}
mkdir dist
echo one > dist/index.html
tidegate rev create web --workspace v1 --from dist
tidegate rev propose web.v1
tidegate rev approve web.v1
tidegate channel create stable --package web --hosts env=prod
""",
    # one user and a published package
    "docs/reference/policy.md": f"""{SERVER}
mkdir dist
echo one > dist/index.html
tidegate rev create web --workspace v1 --from dist
tidegate rev propose web.v1
tidegate rev approve web.v1
""",
    # one user, a published package, its files and one that is stored elsewhere
    "docs/recipes/by-reference.md": f"""{SERVER}
mkdir dist
echo one > dist/index.html
tidegate rev create web --workspace v1 --from dist
tidegate rev propose web.v1
tidegate rev approve web.v1
echo weights > model.bin
""",
}
