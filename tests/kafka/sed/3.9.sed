# Before 4.2 the record classes lived one package higher; nothing else differs in what the shared sources use.
s/\.common\.record\.internal\./.common.record./
