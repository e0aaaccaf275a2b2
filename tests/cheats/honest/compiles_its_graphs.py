"""Runs its model through mx.compile, which on a CPU calls the machine's C++ compiler, also where it is scored."""


class Model(Model):
    def __init__(self, weights):
        super().__init__(weights)
        self.compiled = mx.compile(lambda tokens: logits_of(weights, tokens))

    def __call__(self, tokens):
        return self.compiled(tokens)
