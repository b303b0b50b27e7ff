"""What hostile clients, servers and contents can achieve: `python -m bench attack`.

load          abusive clients next to 1,000 agents: memory, and response times of everyone else
raw           malformed requests on raw sockets, seeded
json          bombs and odd forms of JSON on every route that takes a body
rates         more requests than allowed, by one person, one address, one name
permissions   every route and page, with every role, on all scopes and on the wrong scope
ssrf          addresses that a webhook must not reach, in every spelling
xss           scripts in everything that people and hosts may write, in a real browser
secrets       every byte of the database, the log and the responses, searched for secrets
agent         the agent's client against a server that sends without end
"""
