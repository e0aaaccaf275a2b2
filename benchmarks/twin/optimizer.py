"""The optimizer of train_mlx.py and its schedule: Muon for matrices, AdamW for the rest."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from twin.dials import Dials
from twin.model import GPT

POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def orthogonalize(G: Tensor) -> Tensor:
    """G: (N, rows, columns) float32"""
    X = G / (torch.linalg.vector_norm(G, dim=(-2, -1), keepdim=True) * 1.02 + 1e-6)
    tall = G.shape[-2] > G.shape[-1]
    if tall:
        X = X.mT
    for a, b, c in POLAR_EXPRESS:
        A = X @ X.mT
        X = a * X + (b * A + c * (A @ A)) @ X
    return X.mT if tall else X


def adamw_step(params, grads, ms, vs, rates, now: Tensor, beta2: float) -> None:
    """All parameters at once; rates holds a learning rate and a beta1 for each. now: schedule()'s four numbers."""
    step, scale, _, _ = now.unbind()
    for p, grad, m, v, (lr, beta1) in zip(params, grads, ms, vs, rates, strict=True):
        m.mul_(beta1).add_(grad, alpha=1 - beta1)
        v.mul_(beta2).add_(grad.square(), alpha=1 - beta2)
        m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
        p.sub_(lr * scale * m_hat / (v_hat.sqrt() + (1e-6 if p.ndim < 2 else 1e-10)))


def muon_step(params, grads, momentum: Tensor, variance: Tensor, now: Tensor, matrix_lr: float) -> None:
    """All matrices of one shape. momentum: (N, rows, columns), variance with its short side reduced to 1"""
    _, scale, beta, weight_decay = now.unbind()
    p, grad = torch.stack(params), torch.stack(grads)
    rows, columns = p.shape[-2:]
    momentum.copy_(beta * momentum + (1 - beta) * grad)
    update = orthogonalize((1 - beta) * grad + beta * momentum)
    mean_square = update.square().mean(dim=-1 if rows >= columns else -2, keepdim=True)
    variance.mul_(0.95).add_(mean_square, alpha=0.05)
    evened = variance.clamp_min(1e-10).rsqrt()
    before = mean_square.sum(dim=(-2, -1), keepdim=True).sqrt()
    after = (mean_square * evened.square()).sum(dim=(-2, -1), keepdim=True).sqrt()
    update = update * (evened * before / after.clamp_min(1e-10))
    decay = weight_decay * p * (update * p >= 0)
    stepped = p - matrix_lr * max(1, rows / columns) ** 0.5 * scale * (update + decay)
    for old, new in zip(params, stepped.unbind(), strict=True):
        old.copy_(new)


class MuonAdamW:
    def __init__(self, model: GPT, *, compiled: bool):
        self.dials, by_width = model.dials, (model.dials.width / 768) ** -0.5
        self.adam: list[tuple[Tensor, tuple[float, float]]] = []  # parameter, (learning rate, beta1)
        self.muon: dict[tuple[int, ...], list[Tensor]] = {}
        for name, p in model.named_parameters():
            if "embedding" in name:
                lr = self.dials.induction_lr if name == "induction_embedding" else self.dials.embedding_lr
                self.adam.append((p, (lr * by_width, self.dials.adam_beta1)))
            elif name == "lm_head.weight":
                self.adam.append((p, (self.dials.unembedding_lr * by_width, self.dials.adam_beta1)))
            elif name == "resid_lambdas":
                self.adam.append((p, (self.dials.scalar_lr * 0.01, self.dials.adam_beta1)))
            elif p.ndim < 2:
                self.adam.append((p, (self.dials.scalar_lr, 0.96)))
            else:
                self.muon.setdefault(tuple(p.shape), []).append(p)
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p, _ in self.adam]
        self.stacks = {shape: self.stack_state(shape, names) for shape, names in self.muon.items()}
        compiler = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.adamw_step, self.muon_step = compiler(adamw_step), compiler(muon_step)

    @staticmethod
    def stack_state(shape: tuple[int, ...], params: list[Tensor]) -> tuple[Tensor, Tensor]:
        rows, columns = shape
        reduced = (len(params), rows, 1) if rows >= columns else (len(params), 1, columns)
        like = {"device": params[0].device, "dtype": params[0].dtype}
        return torch.zeros(len(params), rows, columns, **like), torch.zeros(reduced, **like)

    @torch.no_grad()
    def update(self, now: Tensor) -> None:
        params, rates = [p for p, _ in self.adam], [rate for _, rate in self.adam]
        ms, vs = [m for m, _ in self.moments], [v for _, v in self.moments]
        self.adamw_step(params, [p.grad for p in params], ms, vs, rates, now, self.dials.adam_beta2)
        for shape, matrices in self.muon.items():
            self.muon_step(matrices, [p.grad for p in matrices], *self.stacks[shape], now, self.dials.matrix_lr)

    @torch.no_grad()
    def forget(self) -> None:
        for state in itertools.chain(itertools.chain(*self.moments), itertools.chain(*self.stacks.values())):
            state.zero_()


def schedule(dials: Dials, step: int, progress: float) -> list[float]:
    """Step counted from 1, the factor of every learning rate, Muon's momentum and its weight decay."""
    rise = progress / dials.warmup_fraction if progress < dials.warmup_fraction else 1.0
    fall = min(1.0, (1 - progress) / dials.warmdown_fraction) if dials.warmdown_fraction else 1.0
    ramp = min(step / 300, 1)
    return [
        float(step + 1),
        min(rise, fall + (1 - fall) * dials.final_lr_fraction),
        0.85 + (dials.muon_momentum - 0.85) * ramp,
        dials.weight_decay * (1 - progress),
    ]
