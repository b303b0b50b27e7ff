// A receiver of Tidegate's webhooks: it verifies an event, skips repeats, and does what it asks.
//
//     npm install standardwebhooks
//     node receiver.js SECRET_FILE PORT
//
// It takes the messages of a subscription and the effects of an outbox target. What it knows is
// gone when it ends. A receiver that matters keeps ids and states where its effects are.

"use strict";

const fs = require("node:fs");
const http = require("node:http");
const { Webhook } = require("standardwebhooks");

const BODY_BYTES_MAX = 256 * 1024;
const SEEN_MAX = 10_000;

const [secretFile, port] = process.argv.slice(2);
const webhook = new Webhook(fs.readFileSync(secretFile, "utf8").trim().split(/\s+/)[0]);
const seen = new Set(); // in order, so that the oldest can be forgotten
const effects = new Map(); // by scope and operation

// The status and the content of the answer.
function receive(event) {
  if (seen.has(event.id)) {
    console.log("again", event.id);
    return [204];
  }
  const answer = act(event);
  seen.add(event.id);
  if (seen.size > SEEN_MAX) seen.delete(seen.values().next().value);
  return answer;
}

function act(event) {
  const data = event.data ?? {};
  const place = `${data.scope} ${data.operation}`;
  const found = effects.get(place);
  switch (event.type) {
    case "dev.tidegate.effect.requested.v1":
      if (found === undefined || data.sequence >= found.sequence) {
        effects.set(place, { ...data, key: event.id });
        console.log("effect", place, data.releaseId);
      }
      return [204];
    case "dev.tidegate.state.requested.v1":
      return [200, { idempotencyKey: found?.key ?? "", state: found?.requestedState ?? {} }];
    case "dev.tidegate.target.tested.v1":
      console.log("test");
      return [204];
    default:
      console.log("message", event.type, data.title);
      return [204];
  }
}

const server = http.createServer((request, response) => {
  const answer = (status, content) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(content === undefined ? "" : JSON.stringify(content));
  };
  const chunks = [];
  let size = 0;
  request.on("data", (chunk) => {
    size += chunk.length;
    if (size <= BODY_BYTES_MAX) chunks.push(chunk);
  });
  request.on("end", () => {
    if (size > BODY_BYTES_MAX) return answer(413);
    let event;
    try {
      event = webhook.verify(Buffer.concat(chunks), request.headers);
    } catch (error) {
      console.log("refused", error.message);
      return answer(401);
    }
    answer(...receive(event));
  });
});

server.listen(Number(port), "127.0.0.1", () => {
  console.log("listening on", server.address().port);
});
