// Node's openai, against one balancer; as with_openai.py and asking.py.

import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";

import { same, tell } from "./asking.mjs";

// It is installed outside of the repository.
const OpenAI = createRequire(`${process.env.PACKAGES}/`)("openai");
const { BASE, SERVER } = process.env;
const made = (more) => new OpenAI.OpenAI({ baseURL: `${BASE}/v1`, apiKey: "key-of-nobody", maxRetries: 0, timeout: 60000, ...more });
const client = made({});
const IMAGE = Buffer.concat([Buffer.from([0x89, 0x50, 0x4e, 0x47]), randomBytes(1500000)]);
const SOUND = Buffer.concat([Buffer.from("RIFF"), randomBytes(2000000)]);
const TOOL = { type: "function", function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } } };

const say = (content = "hello", more = {}, by = client) =>
  by.chat.completions.create({ model: "llama", messages: [{ role: "user", content }], ...more });
const seen = async () => (await (await fetch(`${SERVER}/seen`)).json()).cancelled;
async function leaving(leave) {
  const before = await seen();
  await leave();
  const until = Date.now() + 20000;
  while ((await seen()) === before) {
    if (Date.now() > until) throw new Error("the server does not see that the client has left");
    await new Promise((done) => setTimeout(done, 5));
  }
}
async function raising(kind, word, ask) {
  try {
    await ask();
  } catch (error) {
    if (!(error instanceof kind)) throw error;
    if (!String(error).includes(word)) throw new Error(`it does not say ${word}: ${error}`);
    return;
  }
  throw new Error(`no ${kind.name} was raised`);
}

const cases = {
  chat: async () => {
    const answer = await say();
    same([answer.choices[0].message.content, answer.usage.completion_tokens], ["hello", 4]);
  },
  stream: async () => {
    let text = "";
    for await (const one of await say("hello", { stream: true })) text += one.choices[0].delta.content ?? "";
    same(text, "hello");
  },
  "one by one": async () => {
    let text = "";
    for await (const one of await say("in turns", { stream: true })) {
      const letter = one.choices[0].delta.content ?? "";
      text += letter;
      if (letter) await fetch(`${SERVER}/next`);
    }
    same(text, "in turns");
  },
  tools: async () => {
    const call = (await say("hello", { tools: [TOOL] })).choices[0].message;
    same(call.tool_calls[0].function.name, "weather");
    const messages = [{ role: "user", content: "hello" }, call, { role: "tool", tool_call_id: call.tool_calls[0].id, content: "rain" }];
    const answer = await client.chat.completions.create({ model: "llama", messages, tools: [TOOL] });
    same(answer.choices[0].message.content, "rain");
  },
  image: async () => {
    const url = `data:image/png;base64,${IMAGE.toString("base64")}`;
    const answer = await say([{ type: "text", text: "What is it?" }, { type: "image_url", image_url: { url } }]);
    same(answer.choices[0].message.content, `${IMAGE.length} bytes`);
  },
  audio: async () => {
    const file = await OpenAI.toFile(SOUND, "a.wav");
    same((await client.audio.transcriptions.create({ model: "whisper", file })).text, `${SOUND.length} bytes`);
  },
  embeddings: async () => {
    const input = Array.from({ length: 2000 }, (_, number) => `text number ${number}`);
    const found = (await client.embeddings.create({ model: "bge", input })).data;
    same(found.map((one) => one.embedding[0]), input.map((_, number) => number));
  },
  responses: async () => {
    const first = await client.responses.create({ model: "llama", input: "one" });
    const second = await client.responses.create({ model: "llama", input: "two", previous_response_id: first.id });
    same(second.output_text, "one | two");
  },
  "response by id": async () => {
    const first = await client.responses.create({ model: "llama", input: "one" });
    same((await client.responses.retrieve(first.id)).id, first.id);
  },
  models: async () => {
    const found = [];
    for await (const one of client.models.list()) found.push(one.id);
    same(found.sort(), ["bge", "llama", "whisper"]);
    same((await client.models.retrieve("bge")).id, "bge");
  },
  cancel: () =>
    leaving(async () => {
      const answer = await say("forever", { stream: true });
      for await (const _ of answer) break; // ends the request
    }),
  timeout: () => leaving(() => raising(OpenAI.APIConnectionTimeoutError, "", () => say("late", {}, made({ timeout: 1000 })))),
  "unknown model": () => raising(OpenAI.NotFoundError, "gpt-5", () => say("hello", { model: "gpt-5" })),
  "tenant limit": () =>
    raising(OpenAI.RateLimitError, "acme", async () => {
      await say("hello", {}, made({ apiKey: "key-of-acme" }));
      await say("hello", {}, made({ apiKey: "key-of-acme" }));
    }),
};

await tell(cases);
