"""Asks a running server about a document, with OpenAI's client.

Start one first (docs/server.md), then: ``python examples/ask_server.py http://127.0.0.1:8000``
"""

import argparse
import secrets
from typing import Any

from openai import OpenAI

DOCUMENT = """A chunk is some tokens of all layers under one key. A slice is one layer of it.
On a device a chunk is an extent, and in DRAM it is a frame. """


def main() -> None:
    """Prints what the server says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="where the server is")
    parser.add_argument("--key", default="any", help="API key, if the server wants one")
    options = parser.parse_args()
    # Its types do not know what this server adds.
    client: Any = OpenAI(base_url=f"{options.url}/v1", api_key=options.key)
    model = client.models.list().data[0].id

    # A path of this server alone: the client sends it as it is.
    cache = client.post(
        "/context_caches", body={"model": model, "text": DOCUMENT}, cast_to=dict[str, object]
    )
    print(f"context cache {cache['id']} has {cache['tokens']} tokens")
    question: list[dict[str, object]] = [
        {"type": "context_cache", "id": cache["id"]},
        {"type": "text", "text": "What is a slice?"},
    ]
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], max_tokens=16, seed=1
    )
    details = answer.usage.prompt_tokens_details
    print(f"of {answer.usage.prompt_tokens} tokens {details.cached_tokens} came from the store")

    # The new turn alone: the store has what was said before.
    name = f"example-{secrets.token_hex(4)}"
    for text in ("What is a chunk?", "And on a device?"):
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": text}],
            max_tokens=16,
            stream=True,
            extra_body={"conversation": name},
        )
        said = "".join(part.choices[0].delta.content or "" for part in stream)
        print(f"{text} {said!r}")
    # Else the store would keep its name for good.
    client.delete(f"/conversations/{name}", cast_to=dict[str, object])


if __name__ == "__main__":
    main()
