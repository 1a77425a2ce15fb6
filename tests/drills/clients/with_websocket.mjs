// Node's own WebSocket, as pages have it, against one balancer. Like a page's it can send no header: the key is a subprotocol.

import { same, tell } from "./asking.mjs";

const { BASE } = process.env;
const url = `${BASE.replace("http", "ws")}/v1/realtime?model=llama`;
const opened = (key) =>
  new Promise((done, failed) => {
    const socket = new WebSocket(url, ["realtime", `openai-insecure-api-key.${key}`]);
    const came = [];
    const waiting = [];
    socket.binaryType = "arraybuffer";
    socket.next = () => (came.length ? Promise.resolve(came.shift()) : new Promise((take) => waiting.push(take)));
    socket.onmessage = ({ data }) => (waiting.length ? waiting.shift()(data) : came.push(data));
    socket.ended = new Promise((end) => (socket.onclose = ({ code, reason }) => end(`${code} ${reason}`)));
    socket.onopen = () => done(socket);
    socket.onerror = () => failed(new Error("it does not open"));
  });

const cases = {
  "both ways": async () => {
    const socket = await opened("key-of-nobody");
    same(socket.protocol, "realtime");
    same(await socket.next(), "hello");
    socket.send("first");
    same(await socket.next(), "first");
    socket.send(new Uint8Array(3000000));
    same((await socket.next()).byteLength, 3000000);
    socket.close();
    await socket.ended;
  },
  "servers end": async () => {
    const socket = await opened("key-of-nobody");
    await socket.next();
    socket.send("leave");
    same(await socket.ended, "4001 bye");
  },
  "wrong key": async () => {
    let opens = true;
    await opened("key-of-another").catch(() => (opens = false));
    same(opens, false);
  },
};

await tell(cases);
process.exit(0);
