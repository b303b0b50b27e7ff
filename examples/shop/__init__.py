"""A shop: products, orders and the demand for them, guarded without a lock.

facts.py           the facts, and the tags by which they are found
catalog.py         AddProduct, ChangeProductName, ChangeProductPrice, SyncProduct
orders.py          PlaceOrder: one order, many products
demand.py          RecordDemand, RevokeDemand: the exact pair of a product and an order
order_product.py   OrderProduct: a cap over all orders of one customer
app.py             the whole as one schema, and a walk through it: python -m examples.shop.app
"""
