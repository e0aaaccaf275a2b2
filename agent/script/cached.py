"""Cache what is found out about a script: a night needs the same facts about all its scripts before every proposal."""

from functools import lru_cache

# a cache of fixed size that is read in a circle always misses, so it is larger than any night
remembered = lru_cache(maxsize=1 << 15)
