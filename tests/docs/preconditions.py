"""What a page takes for granted before its first block: commands that its reader gave before."""

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
STAGES: Final[Mapping[str, str]] = {
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
    # a server that nobody has set up, and everybody's password
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
    # somebody alone, a published package, its files and one that lies elsewhere
    "docs/recipes/by-reference.md": f"""{SERVER}
mkdir dist
echo one > dist/index.html
tidegate rev create web --workspace v1 --from dist
tidegate rev propose web.v1
tidegate rev approve web.v1
echo weights > model.bin
""",
}
