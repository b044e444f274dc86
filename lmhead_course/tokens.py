"""Text to token ids and back, and a printable name for every token."""

import json
import re
import threading
import unicodedata
from pathlib import Path
from typing import Any

from .escaping import visible


def byte_alphabet() -> dict[str, int]:
    """Return the character by which byte-level BPE writes each of the 256 bytes, as character → byte.

    Printable Latin-1 stands for itself; the other 68 bytes take the characters from U+0100 on, so that a space is "Ġ"
    and a line break "Ċ". Source: Radford et al. 2019, the GPT-2 code.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTES = byte_alphabet()


def show_text(text: str) -> str:
    """Return text in which every character can be seen and read as what it is, for labels in plots and tables.

    A space becomes ␣; what draws nothing becomes what ``escaping.visible`` makes of it: ⏎, ⇥, ``<U+200B>``. A combining
    mark at the start gets a ◌ to stand on. Markup stays as typed: whoever draws the label must draw it as text.
    """
    shown = visible(text).replace(" ", "␣")
    return (
        "◌" + shown
        if text and unicodedata.category(text[0]).startswith("M") and shown[0] == text[0]
        else shown
    )


def show_bytes(raw: bytes) -> str:
    """Return UTF-8 bytes as ``show_text`` shows them, and bytes that are no whole character as ``<0xE4>``."""
    pieces = re.split("([\udc80-\udcff]+)", raw.decode("utf-8", "surrogateescape"))
    broken = (pieces[i] for i in range(1, len(pieces), 2))
    whole = (pieces[i] for i in range(0, len(pieces), 2))
    shown = [show_text(next(whole))]
    for lone in broken:
        shown += ["".join(f"<0x{ord(character) - 0xDC00:02X}>" for character in lone), show_text(next(whole))]
    return "".join(shown)


def show_token(token: str | None, byte_level: bool) -> str:
    """Return the printable name of a vocabulary entry, ``<unused>`` for None.

    ``byte_level`` entries are spelled in the alphabet of ``byte_alphabet``; others write a space as "▁" (SentencePiece)
    and single bytes as ``<0xE4>`` already.
    """
    if not token:
        return "<unused>" if token is None else "<empty>"
    if byte_level and all(character in BYTES for character in token):
        return show_bytes(bytes(BYTES[character] for character in token))
    return show_text(token if byte_level else token.replace("▁", " "))


def clean(text: str) -> str:
    """Return the text with halves of surrogate pairs, which no tokenizer can read, joined or replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class FileTokenizer:
    """The tokenizer of a folder with ``tokenizer.json`` and ``tokenizer_config.json``, without transformers.

    Both kinds of tokenizer here have ``encode``, ``decode``, ``token``, ``chat``, ``byte_level`` and ``bos_id``.
    """

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self._lock = threading.Lock()
        self.byte_level = "ByteLevel" in repr(self._tokenizer.decoder)
        self.bos_id = self._tokenizer.token_to_id(self._settings.get("bos_token") or "")

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the ids of a text; ``<|im_end|>`` and its like are one id if ``special``, else plain characters."""
        with self._lock:  # the switch belongs to the tokenizer, and callbacks may run on several threads
            self._tokenizer.encode_special_tokens = not special
            return self._tokenizer.encode(clean(text), add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids, special tokens included; bytes that are no whole character become U+FFFD."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def token(self, token_id: int) -> str | None:
        """Return the vocabulary's own spelling of an id, None for an id without an entry."""
        return self._tokenizer.id_to_token(token_id)

    def chat(self, messages: list[dict[str, str]]) -> str:
        """Return the messages in the model's chat format, up to where the assistant's answer begins."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        template = environment.from_string(self._settings["chat_template"])
        return template.render(messages=messages, add_generation_prompt=True)


class PretrainedTokenizer:
    """A tokenizer of transformers, with the members of ``FileTokenizer``."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self.byte_level = "ByteLevel" in repr(getattr(backend, "decoder", None))
        self.bos_id = tokenizer.bos_token_id
        # Llama and Gemma expect a first token that their tokenizers add by themselves; GPT-2 does not.
        begins = tokenizer("a", add_special_tokens=True).input_ids[:1]
        self._prefix = begins if begins == [self.bos_id] else []

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the ids of a text, after the first token that this tokenizer always adds, if it is one that does."""
        if not text:
            return []
        with self._lock:
            ids = self._tokenizer(
                clean(text), add_special_tokens=False, split_special_tokens=not special, verbose=False
            ).input_ids
        return ids if ids[:1] == self._prefix else self._prefix + ids

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids, special tokens included; bytes that are no whole character become U+FFFD."""
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def token(self, token_id: int) -> str | None:
        """Return the vocabulary's own spelling of an id, None for an id without an entry."""
        return self._tokenizer.convert_ids_to_tokens(token_id) if token_id < len(self._tokenizer) else None

    def chat(self, messages: list[dict[str, str]]) -> str:
        """Return the messages in the model's chat format; raise ``ValueError`` if its tokenizer has none."""
        if not self._tokenizer.chat_template:
            raise ValueError("this model's tokenizer has no chat template; give it plain text instead")
        return self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
