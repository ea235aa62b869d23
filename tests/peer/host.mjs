// The peer's own HTTP/2 host behind our gateway: reads READY, finds the preface, binds, forwards to an API.
// argv: directory of the package, gateway program, port, token, API. Prints "ready" when the gateway has spoken.
import { spawn } from "node:child_process";

const [dir, program, port, token, api] = process.argv.slice(2);
const { createHttp2BridgeServer } = await import(`${dir}/dist/http2-bridge-server.js`);
const { decodeDuplexLine } = await import(`${dir}/dist/duplex-frame-codec.js`);
const nonce = "00112233445566778899aabbccddeeff";
const child = spawn(program, [], {
  stdio: ["pipe", "pipe", "inherit"],
  env: {
    PAPERCLIP_API_BRIDGE_MODE: "http2_v1", PAPERCLIP_BRIDGE_HOST: "127.0.0.1", PAPERCLIP_BRIDGE_PORT: port,
    PAPERCLIP_BRIDGE_TOKEN: token, PAPERCLIP_BRIDGE_NONCE: nonce,
  },
});
const server = createHttp2BridgeServer({
  bridgeToken: token,
  forwardRequest: async (q) => {
    const r = await fetch(api + q.pathname + q.query, {
      method: q.method, redirect: "manual", signal: q.signal,
      headers: { ...q.headers, authorization: `Bearer ${process.env.API_KEY}`, "x-paperclip-run-id": "run-1" },
      body: q.method === "GET" ? undefined : q.body,
    });
    return { status: r.status, headers: { "content-type": r.headers.get("content-type") ?? "" }, body: Buffer.from(await r.arrayBuffer()) };
  },
});

let early = Buffer.alloc(0);
let deliver = null;
child.stdout.on("data", (chunk) => {
  if (deliver) return deliver(chunk);
  early = Buffer.concat([early, chunk]);
  const lf = early.indexOf(10);
  if (lf < 0) return;
  const ready = decodeDuplexLine(early.subarray(0, lf).toString());
  if (!ready.ok || ready.frame.type !== "ready" || ready.frame.nonce !== nonce) {
    console.error("not READY", JSON.stringify(ready));
    process.exit(1);
  }
  const rest = early.subarray(lf + 1);
  const exits = [];
  child.on("exit", (code) => exits.forEach((f) => f({ exitCode: code })));
  server.bindChannel({
    write: (d) => { child.stdin.write(d); },
    onData: (f) => { deliver = f; if (rest.length) f(rest); },
    onExit: (f) => exits.push(f),
    stop: () => child.kill(),
    close: async () => { child.stdin.end(); },
  });
  console.log("ready");
});
child.on("exit", (code, signal) => { console.log(`gateway ${code ?? signal}`); process.exit(code ?? 1); });
process.on("SIGTERM", async () => { await server.close(); child.kill(); });
