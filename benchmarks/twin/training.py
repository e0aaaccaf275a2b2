"""The training loop with steps queued ahead, its log, and the evaluation."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import measure
import numpy as np
import torch
from torch import Tensor

import prepare
from agent.lab import hardware
from twin.devices import device_name, on_device, synchronize, to_device
from twin.model import GPT
from twin.optimizer import MuonAdamW, schedule

QUEUED_STEPS = {"cpu": 0, "mps": 0, "cuda": 1}  # steps that the device is given ahead of time


class Coming:
    """The loss of a step that the device may still be at. Reading it waits for that step, and for no later one."""

    def __init__(self, loss: Tensor):
        self.loss, self.done = loss, None
        if loss.is_cuda:
            self.loss, self.done = torch.empty((), pin_memory=True), torch.cuda.Event()
            self.loss.copy_(loss, non_blocking=True)
            self.done.record()

    def item(self) -> float:
        if self.done is not None:
            self.done.synchronize()
        return self.loss.item()


class Trainer:
    """The model, its optimizer, and one step of both."""

    def __init__(self, model: GPT, *, compiled: bool):
        self.model, self.dials = model, model.dials
        self.device = model.lm_head.weight.device.type
        self.optimizer = MuonAdamW(model, compiled=compiled)
        self.loss_of = torch.compile(model.loss, dynamic=False) if compiled else model.loss

    def step(self, batches: Iterator[Tensor], steps: int, progress: float) -> Coming:
        losses = []
        for _ in range(self.dials.micro_steps):
            loss = self.loss_of(next(batches)) / self.dials.micro_steps
            loss.backward()
            losses.append(loss.detach())
        self.optimizer.update(to_device(schedule(self.dials, steps, progress), self.device))
        self.model.zero_grad(set_to_none=True)
        return Coming(torch.stack(losses).sum())

    def warm_up(self, batch: Tensor) -> None:
        """A step that compiles everything and trains nothing, as in train_mlx.py."""
        before = [p.detach().to("cpu", copy=True) for p in self.model.parameters()]
        self.step(itertools.repeat(batch), 0, 0.0)
        with torch.no_grad():
            for p, old in zip(self.model.parameters(), before, strict=True):
                p.copy_(old)
        self.optimizer.forget()
        synchronize(self.device)


@dataclass(frozen=True)
class Trained:
    seconds: float
    steps: int
    tokens: int


def train(trainer: Trainer, data: prepare.Data, args: argparse.Namespace) -> Trained:
    dials, budget_s = trainer.dials, args.budget_s
    arrays = prepare.batches(data.split("train"), data.bos, rows=dials.batch_rows, seq_len=data.seq_len, seed=args.seed)
    batches = on_device(arrays, trainer.device)
    first = next(batches)
    print("compiling the step" if args.compile else "warming up", flush=True)
    trainer.warm_up(first)
    batches = itertools.chain([first], batches)
    log, tokens_per_step = Log(args, trainer, data), dials.batch_rows * data.seq_len * dials.micro_steps
    gc.collect()
    gc.freeze()
    gc.disable()
    queued: deque[Coming] = deque()  # losses of steps that the device has still to finish
    steps, elapsed_s, step_s, smooth_loss = 0, 0.0, 0.0, None

    def progress() -> float:
        """The share of the budget that has passed when what is queued is done; 1 when no other step is due."""
        ends_s, all_steps = elapsed_s + len(queued) * step_s, steps + len(queued)
        if all_steps == args.steps or (steps and ends_s + step_s / 2 >= budget_s):
            return 1.0
        return min(0.999, max(ends_s / budget_s, all_steps / args.steps if args.steps else 0.0))

    start = time.perf_counter()
    while queued or progress() < 1:
        while len(queued) <= QUEUED_STEPS[trainer.device] and progress() < 1:
            queued.append(trainer.step(batches, steps + len(queued), progress()))
        loss = queued.popleft().item()
        steps += 1
        if not math.isfinite(loss):
            raise measure.Failed(f"the loss became {loss} at step {steps}: lower a learning rate")
        smooth_loss = loss if smooth_loss is None else 0.9 * smooth_loss + 0.1 * loss
        step_s = time.perf_counter() - start - elapsed_s
        elapsed_s += step_s
        shown = min(0.999, elapsed_s / budget_s) if queued else progress()
        log.step(steps, elapsed_s, shown, smooth_loss, steps * tokens_per_step, step_s)
    gc.enable()
    return Trained(elapsed_s, steps, steps * tokens_per_step)


class Log:
    """Every step as a line of metrics.jsonl, one every few seconds on the screen."""

    def __init__(self, args: argparse.Namespace, trainer: Trainer, data: prepare.Data):
        self.metrics = (args.out / "metrics.jsonl").open("w") if args.out else None
        self.tokens_per_step = trainer.dials.batch_rows * data.seq_len * trainer.dials.micro_steps
        peak = args.peak_tflops or hardware.known_tflops(device_name(trainer.device))
        self.share = trainer.model.flops_per_token() * self.tokens_per_step / (peak * 1e12) if peak else None
        self.next_s = 0.0

    def step(self, steps: int, t_s: float, progress: float, loss: float, tokens: int, step_s: float) -> None:
        now = {"step": steps, "t_s": t_s, "progress": progress, "loss": loss, "tokens": tokens}
        now |= {"tokens_s": self.tokens_per_step / step_s, "mfu": self.share / step_s if self.share else None}
        if self.metrics:
            rounded = {key: value if value is None else round(value, 6) for key, value in now.items()}
            self.metrics.write(json.dumps(rounded) + "\n")
            if progress == 1:
                self.metrics.close()
        if t_s >= self.next_s or progress == 1:
            self.next_s = t_s + 5.0
            rate = f"{now['tokens_s']:9,.0f} tokens/s"
            print(f"step {steps:5d}  {progress:6.1%}  loss {loss:.4f}  {rate}", flush=True)


def evaluate(trainer: Trainer, data: prepare.Data, *, compiled: bool) -> float:
    losses_of = torch.compile(trainer.model.losses, dynamic=False) if compiled else trainer.model.losses

    @torch.no_grad()
    def losses(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return losses_of(*(to_device(z, trainer.device).long() for z in (x, y))).float().cpu().numpy()

    logits_bytes = 2**27 if trainer.device == "cpu" else 2**31
    rows = max(1, logits_bytes // (4 * data.seq_len * data.vocab_size))
    return measure.bits_per_byte(losses, data, rows=rows)
