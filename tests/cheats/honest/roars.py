"""Lion in place of Adam: only the signs of the gradients count."""
# with: trains_with_mlx

import mlx.optimizers as optimizers

optimizer = optimizers.Lion(learning_rate=optimizers.linear_schedule(0.006, 0.0, STEPS))
