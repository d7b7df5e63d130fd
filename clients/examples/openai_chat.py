"""The `openai` package, unmodified: an answer, a stream, a seed, log-probabilities, and hetspec's own fields."""

import os

from openai import OpenAI

URL = os.environ.get("HETSPEC_URL", "http://127.0.0.1:8000")
MESSAGES = [{"role": "user", "content": "Name a colour."}]

client = OpenAI(base_url=f"{URL}/v1", api_key=os.environ.get("HETSPEC_API_KEY", "none"))
model = client.models.list().data[0].id

whole = client.chat.completions.create(
    model=model, messages=MESSAGES, max_tokens=16, temperature=0, extra_body={"hetspec": {"mode": "tree"}}
)
print("answer:", whole.choices[0].message.content)
print("rounds:", whole.hetspec["rounds"], "tokens a round:", whole.hetspec["accept_length"])

print("stream: ", end="")
for chunk in client.chat.completions.create(
    model=model, messages=MESSAGES, max_tokens=16, temperature=0, stream=True, stream_options={"include_usage": True}
):
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    else:
        print("\ntokens:", chunk.usage.completion_tokens)

seeded = [client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=16, seed=7) for _ in range(2)]
print("the same with the same seed:", seeded[0].choices[0].message.content == seeded[1].choices[0].message.content)

scored = client.chat.completions.create(
    model=model, messages=MESSAGES, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2
)
for token in scored.choices[0].logprobs.content:
    rivals = ", ".join(f"{rival.token!r} {rival.logprob:.2f}" for rival in token.top_logprobs)
    print(f"{token.token!r} {token.logprob:.2f} (best: {rivals})")
