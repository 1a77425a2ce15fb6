-- wrk: each look-up is of another client, out of 65,536 networks.
local number = 0
request = function()
  number = (number * 1103515245 + 12345) % 2147483648
  local high = math.floor(number / 65536)
  local path = string.format("/v1/route?service=chat&client_ip=%d.%d.%d.7", 11 + high % 180, math.floor(high / 256), high % 251)
  return wrk.format("GET", path)
end
