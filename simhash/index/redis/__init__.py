"""An index in Redis: one script call judges a batch, atomically. Read `layout` first, then `lua/index.lua`, then
`index`."""
