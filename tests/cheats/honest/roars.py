"""Lion in place of Adam: only the signs of the gradients count."""

import mlx.optimizers as optimizers


def train(weights, data, seed, curve):
    optimizer = optimizers.Lion(learning_rate=optimizers.linear_schedule(0.006, 0.0, STEPS))
    for step, rows in zip(range(1, STEPS + 1), batches(data, seed), strict=False):
        loss, gradients = mx.value_and_grad(loss_of)(weights, mx.array(rows))
        weights = optimizer.apply_gradients(gradients, weights)
        mx.eval(weights, optimizer.state)
        curve.write_text(json.dumps({"step": step, "loss": loss.item(), "progress": step / STEPS}) + "\n")
    return weights
