#!/usr/bin/env python3
"""Writes tiny-le.gguf and tiny-be.gguf with gguf-py, and what gguf-py reads back from them as tiny.json.

Run by hand: pip install gguf==0.19.0 (the version is recorded in tiny.json), then ./make.py.
"""

import importlib.metadata
import json
import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
TOKENS = ["<unk>", "<s>", "</s>", "▁the", "é", "😀", "a\nb"]


def write(path, endian):
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv([2])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([-0.5 * i for i in range(len(TOKENS))])
    writer.add_token_types([2, 3, 3, 1, 1, 1, 1])
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_uint64("test.u64", 2**63)
    writer.add_int64("test.i64", -(2**40))
    writer.add_int8("test.i8", -7)
    writer.add_uint16("test.u16", 65535)
    writer.add_float64("test.f64", 0.1)
    random = np.random.default_rng(1)
    embedding = random.standard_normal((7, 64), dtype=np.float32)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", embedding[0].astype(np.float32))
    writer.add_tensor("blk.0.attn_q.weight", embedding.astype(np.float16))
    if endian == gguf.GGUFEndian.LITTLE:  # gguf-py swaps bytes within blocks only by element type
        blocks = gguf.quants.quantize(embedding, gguf.GGMLQuantizationType.Q4_1)
        writer.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def value(field):
    contents = field.contents()
    return contents if not isinstance(contents, np.generic) else contents.item()


def read(path):
    reader = gguf.GGUFReader(path)
    skip = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"}
    return {
        "alignment": reader.alignment,
        "data_start": reader.data_offset,
        "file_size": path.stat().st_size,
        "metadata": {
            key: {"types": [t.name for t in field.types], "value": value(field)}
            for key, field in reader.fields.items()
            if key not in skip
        },
        "tensors": [
            {
                "name": t.name,
                "type": t.tensor_type.name,
                "ne": [int(n) for n in t.shape],
                "start": int(t.data_offset),
                "bytes": int(t.n_bytes),
            }
            for t in reader.tensors
        ],
    }


def main():
    facts = {"gguf": importlib.metadata.version("gguf")}
    for name, endian in [("le", gguf.GGUFEndian.LITTLE), ("be", gguf.GGUFEndian.BIG)]:
        path = HERE / f"tiny-{name}.gguf"
        write(path, endian)
        facts[name] = read(path)
    (HERE / "tiny.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
