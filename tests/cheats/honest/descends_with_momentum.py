"""Plain gradient descent with momentum, from MLX's own optimizers, in place of Adam."""
# with: trains_with_mlx

import mlx.optimizers as optimizers

optimizer = optimizers.SGD(learning_rate=0.3, momentum=0.9)
