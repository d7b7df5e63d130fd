// A streamed chat answer in plain JavaScript: fetch and server-sent events, no package. Node 18 or later, or a browser.
const url = process.env.HETSPEC_URL ?? "http://127.0.0.1:8000";

/** The data of each event of a response, parsed; ends at [DONE], throws where the stream breaks off before. */
async function* events(response) {
  let rest = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const data = line.slice("data: ".length);
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
  throw new Error("the stream broke off");
}

const response = await fetch(`${url}/v1/chat/completions`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({
    messages: [{ role: "user", content: "Name a colour." }],
    max_tokens: 16,
    temperature: 0,
    stream: true,
    hetspec: { mode: "tree" },
  }),
});
if (!response.ok) throw new Error((await response.json()).error.message);

for await (const event of events(response)) {
  process.stdout.write(event.choices[0]?.delta.content ?? "");
  if (event.hetspec) console.log(`\nrounds ${event.hetspec.rounds}, tokens a round ${event.hetspec.accept_length}`);
}
