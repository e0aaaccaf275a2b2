"""Never answers when it is scored."""


class Model(Model):
    def __call__(self, tokens):
        while True:
            time.sleep(1)
