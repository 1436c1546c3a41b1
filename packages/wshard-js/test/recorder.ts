/** Recordings that the tests of the Python library compare with their own, kill, or measure. */

import { writeSync } from "node:fs";

import { fromNumbers, WShardStreamWriter, type StreamChannel, type TypedArray } from "../src/index.js";

/** The channels of tests/formats/wshard/recorder_process.py, so that the same check applies to all writers. */
const CHANNELS = (["f32", "f64", "u8", "i16", "i64", "bool", "u32", "f16"] as const).map((dtype, number) => ({
  id: `c${number}`,
  dtype,
  shape: [number + 1],
  compression: number % 2 === 1 ? ("zstd" as const) : ("none" as const),
}));

function valueOf(channel: number, step: number): TypedArray {
  const { dtype, shape } = CHANNELS[channel]!;
  const values = Array.from({ length: shape[0]! }, (_, at) => (at + step * 7 + channel) % 120);
  return fromNumbers(dtype, shape, values).data;
}

/** Takes the arguments of recorder_process.py: path, flush_steps, fsync, count. */
export async function record([path, flushSteps, fsync, count]: readonly string[]): Promise<void> {
  writeSync(1, "ready\n");
  const writer = new WShardStreamWriter(path!, "ep", CHANNELS, {
    flushSteps: Number(flushSteps),
    fsync: fsync as "flush" | "end" | "never",
  });
  await writer.beginEpisode({ envId: "Killed-v0", timebase: { type: "ticks", tickHz: 30 } });
  let printed = 0;
  for (let step = 0; step < Number(count); step++) {
    const values = Object.fromEntries(CHANNELS.map(({ id }, number) => [id, valueOf(number, step)]));
    writer.writeTimestep(values, { reward: step % 1000 });
    if (writer.flushedSteps !== printed) {
      printed = writer.flushedSteps;
      writeSync(1, `${printed}\n`);
    }
  }
  await writer.endEpisode();
}

/** Returns the seconds of the processor for each of `count` steps of `width` values, and leaves the journal. */
export async function benchAppend(path: string, count: number, width: number): Promise<number> {
  const channels: readonly StreamChannel[] = [
    { id: "state", dtype: "f32", shape: [width] },
    { id: "ctrl", dtype: "f32", shape: [7], signalBlock: "action/ctrl" },
  ];
  const writer = new WShardStreamWriter(path, "ep", channels, { fsync: "never" });
  await writer.beginEpisode({ timebase: { type: "ticks", tickHz: 30 } });
  const values = { state: new Float32Array(width), ctrl: new Float32Array(7) };
  const started = process.cpuUsage();
  for (let step = 0; step < count; step++) {
    writer.writeTimestep(values, { reward: 1 });
  }
  const { user, system } = process.cpuUsage(started);
  writer.close();
  return (user + system) / 1e6 / count;
}
