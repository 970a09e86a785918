"""Publishes JSON lines to a Databus channel over gRPC, and prints where each message went.

    examples/python/setup.sh
    databus channel create orders
    echo '{"id": 12345678901234567890}' |
        examples/python/.venv/bin/python examples/python/publish.py --channel orders --key customer-7

Each line of standard input is one payload; its bytes arrive as they are.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "gen"))

import grpc  # noqa: E402
from databus.v1 import message_pb2, publish_pb2, publish_pb2_grpc  # noqa: E402


def parse_args():
    parser = argparse.ArgumentParser(description="Publish lines of standard input to a Databus channel.")
    parser.add_argument("--agent", default="127.0.0.1:8081", help="gRPC address of the agent (default: %(default)s)")
    parser.add_argument("--channel", required=True, help="channel to publish to")
    parser.add_argument("--key", default="", help="key of every message; messages with the same key keep their order")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="header of every message")
    parser.add_argument("--batch", type=int, default=100, help="messages a call (default: %(default)s)")
    return parser.parse_args()


def messages(lines, key, headers):
    """Turns each line into a message. The channel, not the application, knows the topic."""
    for line in lines:
        payload = line.rstrip(b"\n")
        if not payload:
            continue
        message = message_pb2.Message(value=payload)
        if key:
            message.key = key.encode()
        for header in headers:
            name, _, value = header.partition("=")
            message.headers.add(key=name, value=value.encode())
        yield message


def publish(stub, channel, batch):
    """Publishes one batch and prints a line a message. Returns how many did not reach the channel's durability."""
    response = stub.Publish(publish_pb2.PublishRequest(channel=channel, messages=batch), timeout=30)
    failed = 0
    for result in response.results:
        if result.HasField("error"):
            failed += 1
            print(f"not published: {result.error.message}", file=sys.stderr)
            continue
        print(json.dumps({"topic": result.topic, "partition": result.partition, "offset": str(result.offset)}))
    return failed


def main():
    args = parse_args()
    failed = 0
    with grpc.insecure_channel(args.agent) as channel:
        stub = publish_pb2_grpc.PublishServiceStub(channel)
        batch = []
        try:
            for message in messages(sys.stdin.buffer, args.key, args.header):
                batch.append(message)
                if len(batch) == args.batch:
                    failed += publish(stub, args.channel, batch)
                    batch = []
            if batch:
                failed += publish(stub, args.channel, batch)
        except grpc.RpcError as error:
            print(f"publish to channel {args.channel}: {error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
