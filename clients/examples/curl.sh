#!/bin/sh
# A chat answer, whole and streamed, and a completion: curl alone.
set -eu
url=${HETSPEC_URL:-http://127.0.0.1:8000}

ask() { # path, body, further options
    path=$1 body=$2
    shift 2
    curl --fail-with-body --silent --show-error "$@" "$url$path" -H 'content-type: application/json' -d "$body"
    echo
}

echo "== whole"
ask /v1/chat/completions '{
  "messages": [{"role": "user", "content": "Name a colour."}],
  "max_tokens": 16, "temperature": 0, "hetspec": {"mode": "tree"}
}'

echo "== streamed"
ask /v1/chat/completions '{
  "messages": [{"role": "user", "content": "Name a colour."}],
  "max_tokens": 16, "temperature": 0, "stream": true
}' --no-buffer

echo "== completion"
ask /v1/completions '{"prompt": "The sky is", "max_tokens": 8, "seed": 1, "logprobs": 2}'
