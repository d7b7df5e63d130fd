"""What a client of the load test does: streams answers, and hangs up on a third of them, wherever they are.

Run by test_load.py in a process of its own: locust patches the whole interpreter.
"""

from __future__ import annotations

import json
import random
import time
from itertools import pairwise

from locust import HttpUser, events, task

WORDS = ("river", "engine", "teacher", "sonata", "harbour", "proof", "garden", "voltage")
HANG_UP_SHARE = 1 / 3
MODES = ("plain", "chain", "tree")


@events.request.add_listener
def _show(name: str, exception: BaseException | None, **_: object) -> None:
    if exception is not None:
        print(f"{name}: {exception}", flush=True)


class Reader(HttpUser):
    """No pause between requests: 64 users are 64 streams."""

    @task
    def stream(self) -> None:
        rng = random.Random()
        body = {
            "model": "default",
            "messages": [
                {"role": "user", "content": f"Tell me about a {rng.choice(WORDS)} and a {rng.choice(WORDS)}."}
            ],
            "max_tokens": rng.randint(4, 24),
            "temperature": rng.choice((0, 0.8)),
            "stream": True,
            "hetspec": {"mode": rng.choice(MODES)},
        }
        hang_up_after = rng.randint(0, 8) if rng.random() < HANG_UP_SHARE else None
        start = time.perf_counter()
        with self.client.post(
            "/v1/chat/completions", json=body, stream=True, catch_response=True, name="stream", timeout=300
        ) as response:
            if response.status_code == 429:
                response.success()
                self._note("refused", time.perf_counter() - start)
                time.sleep(float(response.headers["Retry-After"]))
                return
            if response.status_code != 200:
                response.failure(f"{response.status_code}: {response.text}")
                return
            if hang_up_after is None:
                self._read(response, start)
            else:
                self._hang_up(response, hang_up_after)

    def _read(self, response: object, start: float) -> None:
        arrivals: list[float] = []
        done = False
        for line in response.iter_lines():
            data = line.decode().removeprefix("data: ")
            if line.startswith(b"data: {"):
                chunk = json.loads(data)
                if "error" in chunk:
                    response.failure(f"error in the stream: {chunk['error']}")
                    return
                if any(choice["delta"].get("content") for choice in chunk["choices"]):
                    arrivals.append(time.perf_counter())
            done = done or data == "[DONE]"
        if not done:
            response.failure("the stream ended without [DONE]")
            return
        response.success()
        if arrivals:
            self._note("first token", arrivals[0] - start)
        for earlier, later in pairwise(arrivals):
            self._note("between chunks", later - earlier)

    def _hang_up(self, response: object, chunks: int) -> None:
        lines = response.iter_lines()
        for _ in range(chunks):
            if next(lines, None) is None:
                break
        response.success()
        response.close()
        self._note("hung up", 0.0)

    def _note(self, name: str, seconds: float) -> None:
        self.environment.events.request.fire(
            request_type="told", name=name, response_time=1000 * seconds, response_length=0, exception=None, context={}
        )
