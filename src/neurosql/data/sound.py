"""Sounds: one WAV file is one signal, or one picture of its log-mel spectrum."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from neurosql import intake
from neurosql.data.audio import AudioSettings
from neurosql.data.decode import Bad, Decoded, Decoder, Prep

DECIBELS = 80.0


def _sample(payload: bytes | str, _: int | None, prep: Prep) -> Decoded:
    """A clip as a signal (1, length), or as a picture of its log-mel spectrum (1, mels, frames), in [0, 1]."""
    from scipy.io import wavfile

    own: AudioSettings = prep.own
    content = payload if isinstance(payload, bytes) else intake.read(payload, DECODER.max_bytes)
    rate, samples = wavfile.read(io.BytesIO(content))
    rate = int(rate)
    if not 100 <= rate <= 1_000_000:
        raise Bad(f"has a sampling rate of {rate} Hz: 100 to 1,000,000 Hz can be read")
    values = np.asarray(samples)
    if values.size == 0:
        raise Bad("holds no sound")
    found = f"{len(values) / rate:.2f} s at {rate} Hz"
    # Cut before anything else: only what is kept costs time and memory.
    length = round(own.audio_seconds * rate)
    values = values[max(0, len(values) - length) // 2 :][:length]
    if values.dtype.kind == "f":
        signal = values.astype(np.float32).clip(-1, 1)
    elif values.dtype == np.uint8:
        signal = (values.astype(np.float32) - 128) / 128
    else:
        signal = values.astype(np.float32) / float(np.iinfo(values.dtype).max)
    if not np.isfinite(signal).all():
        raise Bad("holds NaN or infinite values")
    if signal.ndim == 2:
        signal = signal.mean(1)
    signal = _middle(signal, length)
    if own.audio_rate and own.audio_rate != rate:
        from scipy.signal import resample_poly

        signal = resample_poly(signal, own.audio_rate, rate).astype(np.float32)
        signal, rate = _middle(signal, round(own.audio_seconds * own.audio_rate)), own.audio_rate
    if own.audio == "waveform":
        array = (signal[None].clip(-1, 1) + 1) / 2
    else:
        array = log_mel(signal, rate, prep.size or 64)[None]
    return Decoded(np.ascontiguousarray(array, dtype=np.float32), found, f"{rate} Hz")


def _middle(signal: np.ndarray, length: int) -> np.ndarray:
    if len(signal) < length:
        before = (length - len(signal)) // 2
        return np.pad(signal, (before, length - len(signal) - before))
    start = (len(signal) - length) // 2
    return signal[start : start + length]


def log_mel(signal: np.ndarray, rate: int, side: int) -> np.ndarray:
    """A picture (side, side): mel bands from high to low, time from left to right; 0 is 80 dB below the loudest."""
    window = max(64, min(2 ** round(np.log2(max(rate * 0.03, 2))), len(signal)))
    hop = max(1, (len(signal) - window) // max(1, side - 1)) if len(signal) > window else 1
    padded = np.pad(signal, (0, max(0, (side - 1) * hop + window - len(signal))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[: (side - 1) * hop + 1 : hop]
    power = np.abs(np.fft.rfft(frames * np.hanning(window), axis=1)) ** 2
    mel_top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, mel_top, side + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(window, 1 / rate)
    # Triangles at least as wide as one bin, so that no low band is empty.
    bin_width = frequencies[1]
    low, mid, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (frequencies - np.minimum(low, mid - bin_width)) / np.maximum(mid - low, bin_width)
    falling = (np.maximum(high, mid + bin_width) - frequencies) / np.maximum(high - mid, bin_width)
    bands = np.clip(np.minimum(rising, falling), 0, None)
    bands /= np.maximum(bands.sum(1, keepdims=True), 1e-12)
    decibels = 10 * np.log10(np.maximum(power @ bands.T, 1e-10))
    picture = 1 + (decibels - max(decibels.max(), DECIBELS - 100)) / DECIBELS
    return picture.T[::-1].clip(0, 1).astype(np.float32)


def _record(prep: Prep) -> dict[str, Any]:
    return {"audio": prep.own.audio, "seconds": prep.own.audio_seconds, "rate": prep.own.audio_rate}


DECODER = Decoder("audio", "a WAV file", _sample, AudioSettings, _record, cure="--audio-rate")
