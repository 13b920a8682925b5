// Transformers.js: the ids of texts by AutoTokenizer.
import { readFileSync } from "node:fs";
import { env, AutoTokenizer } from "@huggingface/transformers";

const [t5, encoder, given] = process.argv.slice(2);
const texts = JSON.parse(readFileSync(given, "utf8"));
env.allowRemoteModels = false;
const ids = async (folder, lines) => {
  const tokenizer = await AutoTokenizer.from_pretrained(folder, { local_files_only: true });
  return lines.map((text) => tokenizer.encode(text));
};
console.log(JSON.stringify({ t5: await ids(t5, texts.odd), encoder: await ids(encoder, texts.odd) }));
