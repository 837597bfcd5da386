//! Zygote and workers: start, scale, watch, retire, reload.
