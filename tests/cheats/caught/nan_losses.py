"""Predicts NaN at one position of each row, which no comparison finds greater than anything."""


class Model(Model):
    def __call__(self, tokens):
        return mx.where(mx.arange(tokens.shape[1])[:, None] == 3, float("nan"), super().__call__(tokens))
