-- wrk: each look-up is of a client, and of a /24, that was not asked about before: 11.8 million come before the first again.
-- The step has no factor in common with their number, and leads from one end of the address space to the other. Each run
-- begins elsewhere, for a server may be loaded by one run after another.
local total, step = 180 * 65536, 7291199
local source = io.open("/dev/urandom", "rb")
local a, b, c = source:read(3):byte(1, 3)
source:close()
local number = (a * 65536 + b * 256 + c) % total
local asks
init = function(arguments)
  asks = arguments[1] == "authorize" -- as a proxy of the operator's
end
request = function()
  number = (number + step) % total
  local client = string.format("%d.%d.%d.7", 11 + math.floor(number / 65536), math.floor(number / 256) % 256, number % 256)
  if asks then
    return wrk.format("GET", "/v1/authorize?service=chat", { ["x-forwarded-for"] = client })
  end
  return wrk.format("GET", "/v1/route?service=chat&client_ip=" .. client)
end
