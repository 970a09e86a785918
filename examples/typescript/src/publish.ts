// Publishes JSON lines to a Databus channel over Connect, and prints where each message went.
//
//   echo '{"id": 12345678901234567890}' | npm start --silent -- --channel orders --key customer-7
//
// Each line of standard input is one payload; its bytes arrive as they are.
import { parseArgs } from "node:util";
import { create } from "@bufbuild/protobuf";
import { type Client, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { type Message, MessageSchema } from "../gen/databus/v1/message_pb.js";
import { PublishService } from "../gen/databus/v1/publish_pb.js";

const encoder = new TextEncoder();

const { values: flags } = parseArgs({
  options: {
    agent: { type: "string", default: "http://127.0.0.1:8080" },
    channel: { type: "string" },
    key: { type: "string" },
    header: { type: "string", multiple: true, default: [] },
    batch: { type: "string", default: "100" },
  },
});

// lines yields standard input line by line, as bytes: node:readline would decode them, and end lines at U+2028 too.
async function* lines(): AsyncGenerator<Uint8Array> {
  let rest = Buffer.alloc(0);
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    rest = Buffer.concat([rest, chunk]);
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      if (end > 0) yield rest.subarray(0, end);
      rest = rest.subarray(end + 1);
    }
  }
  if (rest.length > 0) yield rest;
}

function toMessage(value: Uint8Array): Message {
  const headers = (flags.header ?? []).map((header) => {
    const at = header.indexOf("=");
    return { key: header.slice(0, at), value: encoder.encode(header.slice(at + 1)) };
  });
  return create(MessageSchema, {
    value,
    key: flags.key === undefined ? undefined : encoder.encode(flags.key),
    headers,
  });
}

// publish prints a line a message and answers how many did not reach the channel's durability.
async function publish(client: Client<typeof PublishService>, channel: string, messages: Message[]): Promise<number> {
  const response = await client.publish({ channel, messages }, { timeoutMs: 30_000 });
  let failed = 0;
  for (const { topic, partition, offset, error } of response.results) {
    if (error !== undefined) {
      failed++;
      console.error(`not published: ${error.message}`);
      continue;
    }
    console.log(JSON.stringify({ topic, partition, offset: offset?.toString() }));
  }
  return failed;
}

async function main(): Promise<number> {
  const { agent, channel } = flags;
  if (agent === undefined || channel === undefined) {
    console.error("usage: npm start -- --channel NAME [--agent URL] [--key KEY] [--header NAME=VALUE]... < lines");
    return 2;
  }
  // The binary format: in JSON, Databus maps a payload to the JSON value itself, which protobuf-es knows nothing of.
  const transport = createConnectTransport({ baseUrl: agent, httpVersion: "1.1", useBinaryFormat: true });
  const client = createClient(PublishService, transport);
  const size = Number(flags.batch);
  let failed = 0;
  let batch: Message[] = [];
  try {
    for await (const line of lines()) {
      batch.push(toMessage(line));
      if (batch.length === size) {
        failed += await publish(client, channel, batch);
        batch = [];
      }
    }
    if (batch.length > 0) failed += await publish(client, channel, batch);
  } catch (cause) {
    console.error(`publish to channel ${channel}: ${ConnectError.from(cause).message}`);
    return 1;
  }
  return failed > 0 ? 1 : 0;
}

process.exitCode = await main();
