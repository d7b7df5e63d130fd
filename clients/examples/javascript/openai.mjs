// The npm `openai` package, unmodified: an answer and a stream. `npm ci` first.
import OpenAI from "openai";

const url = process.env.HETSPEC_URL ?? "http://127.0.0.1:8000";
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: process.env.HETSPEC_API_KEY ?? "none" });
const question = {
  model: "default",
  messages: [{ role: "user", content: "Name a colour." }],
  max_tokens: 16,
  temperature: 0,
};

const whole = await client.chat.completions.create({ ...question, hetspec: { mode: "tree" } });
console.log("answer:", whole.choices[0].message.content);
console.log("rounds:", whole.hetspec.rounds, "tokens a round:", whole.hetspec.accept_length);

process.stdout.write("stream: ");
for await (const chunk of await client.chat.completions.create({ ...question, stream: true })) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}
console.log();
