"""One answer of a request: worker outputs in, text with log-probabilities out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llmdeploy.engine.messages import Output, Token
from llmdeploy.engine.text import Decode, Detokenizer, StopFilter

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One token with its log-probability and where its text begins in the answer."""

    token: Token
    text_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one wake-up adds to an answer; `finish` ends it."""

    text: str
    scored: tuple[Scored, ...] = ()
    finish: Finish | None = None


class Choice:
    """Turns one answer's outputs into pieces; the pieces' texts joined are the answer."""

    def __init__(
        self,
        decode: Decode,
        *,
        prompt: Sequence[int],
        stops: Sequence[str],
        scores: bool,
    ) -> None:
        self._detokenizer = Detokenizer(decode, prompt)
        self._stop = StopFilter(stops)
        self._scores = scores
        self._waiting: list[Scored] = []
        self._decoded_characters = 0
        self._shown_characters = 0
        self.tokens = 0
        """Output tokens so far."""
        self.finish: Finish | None = None

    @property
    def cut(self) -> bool:
        """Whether a stop string ended the answer while the worker may still go on."""
        return self._stop.stopped

    def push(self, output: Output) -> Piece:
        """The next piece; outputs after the end add nothing."""
        if self.finish:
            return Piece(text="")
        self.tokens += len(output.tokens)
        text = self._read(output)
        if self._stop.stopped:
            self.finish = "stop"
        elif output.finish in ("stop", "length"):
            text += self._last()
            self.finish = "stop" if self._stop.stopped or output.finish == "stop" else "length"
        self._shown_characters += len(text)
        return Piece(text=text, scored=self._ripe(), finish=self.finish)

    def _read(self, output: Output) -> str:
        if not self._scores:
            return self._stop.push(self._detokenizer.push([token.id for token in output.tokens]))
        shown = []
        for token in output.tokens:
            self._waiting.append(Scored(token=token, text_offset=self._decoded_characters))
            new = self._detokenizer.push([token.id])
            self._decoded_characters += len(new)
            shown.append(self._stop.push(new))
            if self._stop.stopped:
                break
        return "".join(shown)

    def _last(self) -> str:
        text = self._stop.push(self._detokenizer.rest())
        return text if self._stop.stopped else text + self._stop.rest()

    def _ripe(self) -> tuple[Scored, ...]:
        """Scores of tokens whose text has begun to show; all that are left at a plain end."""
        if self.finish and not self._stop.stopped:
            ripe = len(self._waiting)
        else:
            ripe = sum(s.text_offset < self._shown_characters for s in self._waiting)
        scored, self._waiting = tuple(self._waiting[:ripe]), self._waiting[ripe:]
        return scored
