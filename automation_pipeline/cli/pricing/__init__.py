"""`automation pricing`: rules that change prices in the shop, a module a noun; what they print is in the pages."""
