#!/usr/bin/env bash
# Makes .venv beside this file, and in gen/ the client generated from proto/ by grpcio-tools. Run again after a change of either.
set -euo pipefail
cd "$(dirname "$0")"

if ! [ .venv/.installed -nt requirements.txt ]; then
  rm -rf .venv
  python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
  touch .venv/.installed
fi

# google/api and google/rpc come with googleapis-common-protos; a second copy of them would hide google.protobuf.
rm -rf gen
mkdir gen
.venv/bin/python -m grpc_tools.protoc -I ../../proto -I ../../third_party/proto \
  --python_out=gen --pyi_out=gen --grpc_python_out=gen \
  databus/v1/message.proto databus/v1/publish.proto buf/validate/validate.proto
