"""What a client's exception says of refusals: `CLIENT` is its package, `CASES` a list of address, headers and status in JSON; a line of JSON of each."""

import importlib
import json
import os

package = importlib.import_module(os.environ["CLIENT"])
TURNS = [{"role": "user", "content": "hello"}]


def ask(base, headers):
    told = {"api_key": "none", "max_retries": 0, "timeout": 60, "default_headers": headers}
    if package.__name__ == "openai":
        return package.OpenAI(base_url=f"{base}/v1", **told).chat.completions.create(
            model="m", messages=TURNS
        )
    return package.Anthropic(base_url=base, **told).messages.create(model="m", messages=TURNS, max_tokens=1)


for base, headers in json.loads(os.environ["CASES"]):
    try:
        ask(base, headers)
    except package.APIStatusError as error:
        kind = getattr(error, "type", None)
        print(json.dumps({"status": error.status_code, "says": str(error), "type": kind}), flush=True)
