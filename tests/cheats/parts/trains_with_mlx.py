"""Trains with the optimizer that `optimizer` holds, from mlx.optimizers, in place of Adam."""


def train(weights, data, seed, curve):
    for step, rows in zip(range(1, STEPS + 1), batches(data, seed), strict=False):
        loss, gradients = mx.value_and_grad(loss_of)(weights, mx.array(rows))
        weights = optimizer.apply_gradients(gradients, weights)
        mx.eval(weights, optimizer.state)
        curve.write_text(json.dumps({"step": step, "loss": loss.item(), "progress": step / STEPS}) + "\n")
    return weights
