// For servers that would listen on every address of the machine: on this machine's own alone, with
// the number of the port as their first line. node --import loopback.mjs SERVER
import { Server } from "node:net";

const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  if (typeof port === "object") return listen.call(this, port, ...rest);
  this.once("listening", () => console.log(this.address().port));
  return listen.call(this, Number(port), "127.0.0.1", ...rest);
};
