"""Plain gradient descent with momentum, from MLX's own optimizers, in place of Adam."""

import mlx.optimizers as optimizers


def train(weights, data, seed, curve):
    optimizer = optimizers.SGD(learning_rate=0.3, momentum=0.9)
    for step, rows in zip(range(1, STEPS + 1), batches(data, seed), strict=False):
        loss, gradients = mx.value_and_grad(loss_of)(weights, mx.array(rows))
        weights = optimizer.apply_gradients(gradients, weights)
        mx.eval(weights, optimizer.state)
        curve.write_text(json.dumps({"step": step, "loss": loss.item(), "progress": step / STEPS}) + "\n")
    return weights
