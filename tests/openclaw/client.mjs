// OpenClaw's own GatewayClient, told what to do by a test: a line of JSON in, lines of JSON out.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, url, token] = process.argv.slice(2);
const { GatewayClient } = await import(pathToFileURL(sdk).href);
const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const client = new GatewayClient({
  url,
  token,
  clientName: "gateway-client",
  clientVersion: "test",
  mode: "backend",
  scopes: ["operator.admin"],
  deviceIdentity: null,
  minProtocol: 4,
  maxProtocol: 4,
  onHelloOk: (hello) => tell({ told: "hello", hello }),
  onEvent: (event) => tell({ told: "event", event: event.event, payload: event.payload }),
  onClose: (code, reason) => tell({ told: "close", code, reason }),
  onConnectError: (error) => tell({ told: "connect-error", message: String(error) }),
});
client.start();

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params, expectFinal } = JSON.parse(line);
  client
    .request(method, params, { expectFinal, onAccepted: (payload) => tell({ told: "accepted", id, payload }) })
    .then((payload) => tell({ told: "answer", id, ok: true, payload }))
    .catch((error) => tell({ told: "answer", id, ok: false, code: error.gatewayCode, message: error.message }));
}
await client.stopAndWait();
